package systemd_test

import (
	"strconv"
	"strings"
	"testing"
)

// activation is a socket unit for the service.
func (l *Lab) activation(lines string) {
	l.t.Helper()
	l.Service("supervisord.socket", "[Socket]\nService=supervisord.service\n"+lines+"\n")
	l.Run("systemctl", "start", "supervisord.socket")
}

// inode returns the inodes of the sockets that listen at an address.
func (l *Lab) inode(address string) string {
	l.t.Helper()
	var found []string
	for line := range strings.Lines(l.Run("ss", "-Hlnte", "src", address)) {
		_, rest, _ := strings.Cut(line, " ino:")
		inode, _, _ := strings.Cut(rest, " ")
		found = append(found, inode)
	}
	return strings.Join(found, ",")
}

func TestSocketOfASocketUnitIsTakenByTheNameOfTheListener(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		l.activation("ListenStream=127.0.0.1:9090\nFileDescriptorName=http")
		l.Run("systemctl", "start", "supervisord")
		if _, err := l.Get("http://127.0.0.1:9090/"); err != nil {
			t.Error(err)
		}
		if also := l.inode("127.0.0.1:8080"); also != "" {
			t.Errorf("the configured address is bound too: %s", also)
		}
	})
}

func TestSocketOfASocketUnitIsTakenByItsAddressAndNotBoundAgain(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		l.activation("ListenStream=127.0.0.1:8080")
		inode := l.inode("127.0.0.1:8080")
		l.Run("systemctl", "start", "supervisord")
		if _, err := l.Get("http://127.0.0.1:8080/"); err != nil {
			t.Error(err)
		}
		l.reloads(t, l.Workers("hello"))
		if now := l.inode("127.0.0.1:8080"); now != inode {
			t.Errorf("the listening socket was %s and is %s", inode, now)
		}
		l.Until("the store has three descriptors for each worker and two records: systemd has the socket itself",
			func() bool {
				return l.Property("supervisord", "NFileDescriptorStore") == "8"
			})
	})
}

func TestSocketOfASocketUnitIsKeptWhenTheMasterDiesRestartsAndStops(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		l.activation("ListenStream=127.0.0.1:8080\nFileDescriptorName=http")
		inode := l.inode("127.0.0.1:8080")
		l.Run("systemctl", "start", "supervisord")
		workers := l.Workers("hello")
		load := l.Load("127.0.0.1:8080", 3, 0)
		l.Until("the load runs", func() bool { return load.Requests() > 100 })
		for range 3 {
			l.kill()
		}
		l.Keeps(workers)
		l.reloads(t, workers)
		l.Run("systemctl", "restart", "supervisord")
		l.Run("systemctl", "stop", "supervisord.service") // the next client starts the service again
		l.Until("it serves again", func() bool { return l.Property("supervisord", "ActiveState") == "active" })
		load.Lossless()
		if now := l.inode("127.0.0.1:8080"); now != inode {
			t.Errorf("the listening socket was %s and is %s", inode, now)
		}
		for _, entry := range l.Journal("-u", "supervisord", "MESSAGE=worker is killed") {
			t.Errorf("a worker did not exit by itself: %v", entry)
		}
	})
}

func TestUnixSocketOfASocketUnitIsNeverUnlinked(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(strings.ReplaceAll(helloConfig, "127.0.0.1:8080", "unix:/run/hello.sock"))
		l.activation("ListenStream=/run/hello.sock\nSocketMode=0600")
		before := l.Run("stat", "-c", "%i %a", "/run/hello.sock")
		l.Run("systemctl", "start", "supervisord")
		l.kill()
		l.reloads(t, l.Workers("hello"))
		l.Run("systemctl", "stop", "supervisord.service")
		if now := l.Run("stat", "-c", "%i %a", "/run/hello.sock"); now != before {
			t.Errorf("inode and mode of the path were %s and are %s", before, now)
		}
	})
}

// blocking reports whether the listening socket of the first worker blocks: a flag of the socket, not of the
// descriptor.
func (l *Lab) blocking(worker string) bool {
	l.t.Helper()
	flags := l.Run("sed", "-n", `s/flags:\t//p`, "/proc/"+worker+"/fdinfo/3")
	n, err := strconv.ParseUint(flags, 8, 64)
	must(l.t, err)
	return n&0o4000 == 0
}

func TestSocketUnitSocketBlocksUnlessNonblockIsSet(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		sleeper := "\n[program.web]\ncommand = [\"sleep\", \"1000\"]\nready = { delay = \"10ms\", accepts = false }\n" +
			"[[program.web.listen]]\nname = \"http\"\naddress = \"127.0.0.1:8080\"\n"
		l.Prepare(sleeper + "nonblock = true\n")
		l.activation("ListenStream=127.0.0.1:8080")
		l.Run("systemctl", "start", "supervisord")
		if l.blocking(l.Workers("sleep")[0]) {
			t.Error("with nonblock the socket blocks")
		}
		l.Write("/etc/supervisord/config.toml", sleeper, 0o644)
		l.Run("systemctl", "restart", "supervisord")
		if !l.blocking(l.Workers("sleep")[0]) {
			t.Error("without nonblock the socket does not block")
		}
	})
}

func TestDeathOfTheMasterLeavesANonBlockingSocketOfASocketUnitToItsWorkers(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		l.activation("ListenStream=127.0.0.1:8080")
		l.Run("systemctl", "start", "supervisord")
		worker := l.Workers("hello")[0]
		if l.blocking(worker) {
			t.Fatal("the socket blocks, although a Go worker has made it non-blocking")
		}
		l.kill() // systemd clears the flag for the next master
		if l.blocking(worker) {
			t.Error("the surviving worker has a blocking socket")
		}
	})
}

// TestRestartAfterAReloadResetsNobodyWithReusePort has one socket in the unit, and two at one address: clients may wait
// in each.
func TestRestartAfterAReloadResetsNobodyWithReusePort(t *testing.T) {
	for _, sockets := range []int{1, 2} {
		t.Run(strconv.Itoa(sockets), func(t *testing.T) {
			Each(t, func(t *testing.T, l *Lab) {
				l.Prepare(helloConfig)
				l.activation("ReusePort=yes\nFileDescriptorName=http" + strings.Repeat("\nListenStream=127.0.0.1:8080", sockets))
				l.Run("systemctl", "start", "supervisord")
				load := l.Load("127.0.0.1:8080", 12, 0)
				l.Until("the load runs", func() bool { return load.Requests() > 100 })
				for range 3 {
					l.reloads(t, l.Workers("hello"))
					l.Run("systemctl", "restart", "supervisord")
				}
				load.Lossless()
			})
		})
	}
}
