package systemd_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// gated is a program whose workers wait for a file: a slow boot that ends when the test says so.
func gated(name, address, gate string) string {
	return program(name, address, "/bin/sh", "-c",
		"until test -e "+gate+"; do sleep 0.05; done; exec /usr/local/bin/hello")
}

// program is a program of one worker with a listener that reports its readiness.
func program(name, address string, command ...string) string {
	return "\n[program." + name + "]\ncommand = [\"" + strings.Join(command, `", "`) + "\"]\n" +
		"restart = { backoff = { min = \"200ms\", max = \"200ms\" } }\n" +
		"[[program." + name + ".listen]]\nname = \"http\"\naddress = \"" + address + "\"\n" +
		"[program." + name + ".ready]\nmethod = \"notify\"\naccepts = false\n"
}

// Background runs a command in the lab and returns at once; the channel gets its result.
func (l *Lab) Background(args ...string) <-chan string {
	l.t.Helper()
	command := l.Command(args...)
	ended := make(chan string, 1)
	done := make(chan struct{})
	l.t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		out, err := command.CombinedOutput()
		ended <- string(out) + exitText(err)
	}()
	return ended
}

func exitText(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.String()
	} else if err != nil {
		return err.Error()
	}
	return ""
}

// Status returns the last status that supervisord sent to systemd.
func (l *Lab) Status() string {
	l.t.Helper()
	return l.Property("supervisord", "StatusText")
}

// Says waits for this status.
func (l *Lab) Says(status string) {
	l.t.Helper()
	l.Until("the status is "+status, func() bool { return l.Status() == status })
}

func TestStartLastsUntilEveryProgramServes(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(gated("slow", "127.0.0.1:8081", "/etc/go") + helloConfig)
		start := l.Background("systemctl", "start", "supervisord")
		l.Says("hello up, generation 1 (2 workers); slow starting, generation 1 starting (0/1 ready)")
		if state := l.Property("supervisord", "ActiveState"); state != "activating" {
			t.Errorf("one program does not serve yet, and the service is %s", state)
		}
		select {
		case said := <-start:
			t.Errorf("systemctl start has ended already: %q", said)
		default:
		}
		l.Write("/etc/go", "", 0o644)
		if said := <-start; said != "" {
			t.Errorf("systemctl start: %s", said)
		}
		if _, err := l.Get("http://127.0.0.1:8081/"); err != nil {
			t.Error(err)
		}
	})
}

func TestProgramThatCannotStartDoesNotHoldTheStartAndTheStatusNamesIt(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(program("broken", "127.0.0.1:8081", "/usr/local/bin/hello", "-fail") + helloConfig)
		if state := l.Property("supervisord", "ActiveState"); state != "active" {
			t.Errorf("the service is %s", state)
		}
		if _, err := l.Get("http://127.0.0.1:8080/"); err != nil {
			t.Errorf("the other program: %v", err)
		}
		l.Until("the status reports the failed start", func() bool {
			status := l.Status()
			return strings.HasPrefix(status, "broken ") && strings.Contains(status, " failed start")
		})
	})
}

func TestStatusFollowsAReloadToItsEnd(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Write("/etc/go", "", 0o644)
		l.Start(gated("web", "127.0.0.1:8080", "/etc/go"))
		l.Says("web up, generation 1 (1 worker)")
		l.Run("rm", "/etc/go")
		slow := l.Background("bash", "-c",
			`exec 3<>/dev/tcp/127.0.0.1/8080; printf 'GET /slow?d=8s HTTP/1.0\r\n\r\n' >&3; head -n1 <&3 | tr -d '\r\n'`)
		l.Until("the request is in flight",
			func() bool { return l.Run("ss", "-Hnt", "state", "established", "dport", "=", ":8080") != "" })
		l.Run("systemctl", "kill", "-s", "HUP", "--kill-who=main", "supervisord")
		l.Says("web reloading, generation 1 (1 worker), generation 2 starting (0/1 ready)")
		l.Write("/etc/go", "", 0o644)
		l.Says("web up, generation 2 (1 worker), 1 draining")
		if said := <-slow; said != "HTTP/1.0 200 OK" {
			t.Errorf("the request in flight ended with %q", said)
		}
		l.Says("web up, generation 2 (1 worker)")
	})
}

// stopTimeout is the default of stop.timeout.
const stopTimeout = 30 * time.Second

func TestSystemctlStatusShowsThatSupervisordStops(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(program("stubborn", "127.0.0.1:8080", "/bin/sh", "-c",
			"trap '' TERM; systemd-notify --ready; while :; do sleep 0.1; done"))
		stop := l.Background("systemctl", "stop", "supervisord")
		l.Until("the status begins with stopping",
			func() bool { return strings.HasPrefix(l.Status(), "stopping: stubborn stopping") })
		time.Sleep(300 * time.Millisecond) // an earlier second TERM counts as a duplicate
		second := time.Now()
		l.Run("systemctl", "kill", "-s", "TERM", "--kill-who=main", "supervisord") // means stop now
		if said := <-stop; said != "" {
			t.Errorf("systemctl stop: %s", said)
		}
		if took := time.Since(second); took > stopTimeout/2 {
			t.Errorf("the second TERM ended supervisord after %v only", took)
		}
	})
}
