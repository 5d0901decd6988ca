package systemd_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rounds is how often the master is killed or replaced in one test.
const rounds = 20

// Master returns the PID of the main process of the service according to systemd, or "0".
func (l *Lab) Master() string {
	l.t.Helper()
	return l.Property("supervisord", "MainPID")
}

// kill kills the master and waits until systemd has started it again.
func (l *Lab) kill() {
	l.t.Helper()
	old := l.Master()
	l.Run("kill", "-9", old)
	l.succeeded(old)
}

// succeeded waits until systemd has started another master than old.
func (l *Lab) succeeded(old string) {
	l.t.Helper()
	l.Until("a new master is up", func() bool {
		now, state, _ := strings.Cut(l.Run("systemctl", "show", "--value", "-p", "MainPID", "-p", "ActiveState",
			"supervisord"), "\n")
		return now != old && now != "0" && state == "active"
	})
}

// StoreIs waits until systemd keeps exactly the descriptors for two ready workers: a pidfd, a notify socket and the
// notifications of a filter for each, the sockets of the listener, and the two records.
func (l *Lab) StoreIs() {
	l.t.Helper()
	l.storeIs(2)
}

func (l *Lab) storeIs(workers int) {
	l.t.Helper()
	defer func() {
		if l.t.Failed() { // which they are; since systemd 254
			names, _ := l.Try("systemd-analyze", "fdstore", "supervisord")
			l.t.Logf("%d sockets, and the store:\n%s", l.sockets(), names)
		}
	}()
	l.Until("the store holds what is needed and nothing else", func() bool {
		sockets := l.sockets()
		return sockets > 0 && l.Property("supervisord", "NFileDescriptorStore") == strconv.Itoa(3*workers+sockets+2)
	})
}

// mostLanes is how many generations of these tests can have a socket at one time: one that serves, one on trial, and
// max_draining.
const mostLanes = 6

// sockets is how many sockets the listener of hello has, by the status: generations take turns with them. 0: there is
// no status now.
func (l *Lab) sockets() int {
	l.t.Helper()
	out, code := l.Try("supervisord", "status", "--json")
	var status struct {
		Programs []struct {
			Listeners []struct {
				FDs []int `json:"fds"`
			} `json:"listeners"`
		} `json:"programs"`
	}
	if code != 0 || json.Unmarshal([]byte(out), &status) != nil || len(status.Programs) != 1 ||
		len(status.Programs[0].Listeners) != 1 {
		return 0
	}
	n := len(status.Programs[0].Listeners[0].FDs)
	if n > mostLanes {
		l.t.Errorf("the listener has %d sockets, at most %d generations can live", n, mostLanes)
	}
	return n
}

func TestKillOfTheMasterLosesNoRequestAndNoWorker(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		l.StoreIs()
		workers := l.Workers("hello")
		load := l.Load("127.0.0.1:8080", 2, 2)
		for range rounds {
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // killed at any moment: no event to wait for
			l.Run("systemctl", "reset-failed", "supervisord")           // 20 deaths in a row are more than StartLimitBurst
			l.kill()
		}
		l.Keeps(workers)
		l.StoreIs()
		l.reloads(t, workers)
		load.Lossless()
	})
}

// reloads checks that a HUP replaces the workers and that nothing is left of the old ones.
func (l *Lab) reloads(t *testing.T, before []string) {
	t.Helper()
	l.Run("systemctl", "kill", "-s", "HUP", "--kill-who=main", "supervisord")
	l.Until("the workers have been replaced", func() bool {
		now := l.Workers("hello")
		return len(now) == len(before) &&
			!slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(before, pid) })
	})
}

func TestKillOfTheMasterMidReloadLosesNoRequest(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		load := l.Load("127.0.0.1:8080", 2, 2)
		for range rounds {
			l.Run("systemctl", "reset-failed", "supervisord")
			l.Run("systemctl", "kill", "-s", "HUP", "--kill-who=main", "supervisord")
			time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond) // at some point of the reload
			l.kill()
		}
		l.Until("the reload has ended, successfully or not", func() bool {
			return strings.HasPrefix(l.Property("supervisord", "StatusText"), "hello up") &&
				!strings.Contains(l.Property("supervisord", "StatusText"), "draining") && len(l.Workers("hello")) == 2
		})
		l.StoreIs()
		l.reloads(t, l.Workers("hello"))
		load.Lossless()
		l.Run("systemctl", "stop", "supervisord")
		if left := l.Workers("hello"); len(left) > 0 {
			t.Errorf("after the stop %v are left", left)
		}
	})
}

func TestDeathOfTheMasterIsSurvivedWithAnInvalidConfiguration(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		workers := l.Workers("hello")
		l.Write("/etc/supervisord/config.toml", "nonsense", 0o644)
		l.kill()
		l.Keeps(workers)
		l.Write("/etc/supervisord/config.toml", helloConfig, 0o644)
		l.reloads(t, workers)
	})
}

// switches returns how often a new image has taken over in this process.
func (l *Lab) switches(master string) int {
	l.t.Helper()
	n := 0
	for _, entry := range l.Journal("_PID=" + master) {
		if strings.HasPrefix(entry["MESSAGE"], "supervisord was upgraded in place") {
			n++
		}
	}
	return n
}

func TestTwentyUpgradesLeaveTheStoreAsItWas(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		l.StoreIs()
		workers, master := l.Workers("hello"), l.Master()
		load := l.Load("127.0.0.1:8080", 2, 2)
		for n := range rounds {
			l.Run("systemctl", "kill", "-s", "USR2", "--kill-who=main", "supervisord")
			l.Until("the new image has taken over", func() bool {
				return l.switches(master) > n
			})
		}
		if now := l.Workers("hello"); !slices.Equal(now, workers) || l.Master() != master {
			t.Errorf("the workers were %v and are %v, the master was %s and is %s", workers, now, master, l.Master())
		}
		l.StoreIs()
		l.kill()
		l.reloads(t, workers)
		l.StoreIs()
		load.Lossless()
	})
}

func TestWorkersThatABusySystemdHasNotHeardOfSurviveAnUpgradeAndADeath(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(strings.Replace(helloConfig, "workers = 2", "workers = 40", 1))
		l.storeIs(40)
		master, first := l.Master(), l.Workers("hello")
		must(t, syscall.Kill(l.PID, syscall.SIGSTOP)) // meanwhile more messages are sent than its socket holds
		t.Cleanup(func() { syscall.Kill(l.PID, syscall.SIGCONT) })
		l.Run("kill", "-HUP", master)
		l.Until("the workers have been replaced", func() bool {
			now := l.Workers("hello")
			return len(now) == len(first) &&
				!slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(first, pid) })
		})
		l.Run("kill", "-USR2", master)
		l.Until("the new image has taken over", func() bool { return l.switches(master) > 0 })
		must(t, syscall.Kill(l.PID, syscall.SIGCONT))
		l.storeIs(40)
		workers := l.Workers("hello")
		l.kill()
		l.Keeps(workers)
	})
}

func TestHundredReloadsLeaveTheStoreAsItWas(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		for range 100 {
			l.reloads(t, l.Workers("hello"))
		}
		l.StoreIs()
	})
}
