package systemd_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inUnit returns the command lines of the processes in the control group of the service.
func (l *Lab) inUnit() []string {
	l.t.Helper()
	out, _ := l.Try("sh", "-c", "for p in $(cat /sys/fs/cgroup/system.slice/supervisord.service/cgroup.procs "+
		"2>/dev/null); do tr '\\0' ' ' </proc/$p/cmdline; echo; done")
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// TestStopLeavesNothing stops workers that ignore TERM and grandchildren in other sessions, also after the death of the
// master.
func TestStopLeavesNothing(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(program("stubborn", "127.0.0.1:8081", "/bin/sh", "-c",
			"trap '' TERM; systemd-notify --ready; while :; do sleep 0.1; done") +
			"[program.stubborn.stop]\ntimeout = \"500ms\"\n" +
			program("parent", "127.0.0.1:8080", "/bin/sh", "-c", "setsid sh -c 'trap : TERM HUP; sleep 1111 & sleep 2222' & "+
				"setsid setsid sleep 3333 & exec /usr/local/bin/hello"))
		for _, dies := range []bool{false, true} {
			l.Run("systemctl", "start", "supervisord")
			l.Until("the grandchildren run", func() bool {
				running := "\n" + strings.Join(l.inUnit(), "\n")
				return strings.Contains(running, "\nsleep 1111") && strings.Contains(running, "\nsleep 2222") &&
					strings.Contains(running, "\nsleep 3333")
			})
			if dies {
				l.kill()
			}
			l.Run("systemctl", "stop", "supervisord")
			l.cleanStop(t)
		}
	})
}

// cleanStop checks that the service has stopped cleanly and that nothing is left.
func (l *Lab) cleanStop(t *testing.T) {
	t.Helper()
	if left := l.inUnit(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if result := l.Property("supervisord", "Result"); result != "success" {
		t.Errorf("systemd calls the stop %q", result)
	}
	if out, code := l.Try("ls", "/run/supervisord"); code == 0 {
		t.Errorf("/run/supervisord still has %q", out)
	}
	if kept := l.Property("supervisord", "NFileDescriptorStore"); kept != "0" {
		t.Errorf("the store still has %s descriptors", kept)
	}
}

func TestRestartReplacesTheWorkersAndRefusesNoConnection(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		before := l.Workers("hello")
		load := l.Load("127.0.0.1:8080", 2, 0)
		l.Until("the load runs", func() bool { return load.Requests() > 100 })
		l.Run("systemctl", "restart", "supervisord")
		now := l.Workers("hello")
		if len(now) != 2 || slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(before, pid) }) {
			t.Errorf("the workers were %v and are %v", before, now)
		}
		load.Lossless()
	})
}

func TestRestartKeepsTheWorkersWithTheDropInForIt(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		l.Copy(filepath.Join(repository(t), "systemd/drop-ins/keep-workers.conf"), dropIns+"/keep-workers.conf")
		l.Run("systemctl", "daemon-reload")
		l.Run("systemctl", "start", "supervisord")
		l.StoreIs()
		workers, master := l.Workers("hello"), l.Master()
		load := l.Load("127.0.0.1:8080", 2, 2)
		for range 3 {
			l.Run("systemctl", "restart", "supervisord")
		}
		if l.Master() == master {
			t.Error("the master was not restarted")
		}
		l.Keeps(workers)
		l.StoreIs()
		l.reloads(t, workers)
		load.Lossless()
		l.Run("systemctl", "stop", "supervisord")
		l.cleanStop(t)
	})
}

func TestMasterOnRTMIN1IsStartedAgainAndKeepsItsWorkers(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		workers, master := l.Workers("hello"), l.Master()
		l.Run("systemctl", "kill", "-s", "RTMIN+1", "--kill-who=main", "supervisord")
		l.succeeded(master)
		l.Keeps(workers)
	})
}

func TestStopMayExceedTimeoutStopSecIfTheProgramAllowsIt(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(slow("/etc/go"))
		l.Write(dropIns+"/short.conf", "[Service]\nTimeoutStopSec=2\n", 0o644)
		l.Run("systemctl", "daemon-reload")
		l.Write("/etc/go", "", 0o644)
		l.Run("systemctl", "start", "supervisord")
		stop := l.Background("systemctl", "stop", "supervisord")
		if said := <-stop; said != "" {
			t.Errorf("systemctl stop: %s", said)
		}
		l.cleanStop(t)
	})
}

// slow is a program that starts once a file exists and takes 4.5 s to stop.
func slow(gate string) string {
	return program("slow", "127.0.0.1:8080", "/bin/sh", "-c",
		"trap 'sleep 4.5; exit 0' TERM; until test -e "+gate+
			"; do sleep 0.05; done; systemd-notify --ready; while :; do sleep 0.05; done") +
		"[program.slow.stop]\ntimeout = \"20s\"\n"
}

func TestStopAfterAReloadMayLastLongerThanItsTimeout(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(slow("/etc/go"))
		l.Write(dropIns+"/short.conf", "[Service]\nTimeoutStopSec=2\n", 0o644)
		l.Run("systemctl", "daemon-reload")
		l.Write("/etc/go", "", 0o644)
		l.Run("systemctl", "start", "supervisord")
		l.Run("systemctl", "kill", "-s", "HUP", "--kill-who=main", "supervisord")
		l.Says("slow up, generation 2 (1 worker), 1 draining")
		if said := <-l.Background("systemctl", "stop", "supervisord"); said != "" {
			t.Errorf("systemctl stop: %s", said)
		}
		l.cleanStop(t)
	})
}

func TestStartMayExceedTimeoutStartSecIfTheProgramAllowsIt(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(program("slow", "127.0.0.1:8080", "/usr/local/bin/hello", "-boot-delay", "4500ms"))
		l.Write(dropIns+"/short.conf", "[Service]\nTimeoutStartSec=2\n", 0o644)
		l.Run("systemctl", "daemon-reload")
		l.Run("systemctl", "start", "supervisord")
		if state := l.Property("supervisord", "NRestarts"); state != "0" {
			t.Errorf("the service was restarted %s times", state)
		}
	})
}

func TestHangingMasterIsReplacedAndItsWorkersKeepServing(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		l.Write(dropIns+"/watchdog.conf", "[Service]\nWatchdogSec=3\n", 0o644)
		l.Run("systemctl", "daemon-reload")
		l.Run("systemctl", "start", "supervisord")
		l.StoreIs()
		workers, master := l.Workers("hello"), l.Master()
		load := l.Load("127.0.0.1:8080", 2, 2)
		l.Run("kill", "-STOP", master)
		l.succeeded(master)
		l.Keeps(workers)
		l.StoreIs()
		l.reloads(t, workers)
		load.Lossless()
		if said := l.Journal("-u", "supervisord", "UNIT_RESULT=watchdog"); len(said) == 0 {
			t.Log("the journal does not name the watchdog")
		}
	})
}

func TestIdleMasterFeedsTheWatchdog(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		l.Write(dropIns+"/watchdog.conf", "[Service]\nWatchdogSec=2\n", 0o644)
		l.Run("systemctl", "daemon-reload")
		l.Run("systemctl", "start", "supervisord")
		fed := l.Property("supervisord", "WatchdogTimestampMonotonic")
		for range 5 {
			l.Until("the watchdog is fed again", func() bool {
				now := l.Property("supervisord", "WatchdogTimestampMonotonic")
				again := now != fed
				fed = now
				return again
			})
		}
		if n := l.Property("supervisord", "NRestarts"); n != "0" {
			t.Errorf("the service was restarted %s times", n)
		}
	})
}
