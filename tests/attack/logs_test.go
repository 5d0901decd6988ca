package attack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
)

// noisy is a program that writes without end. More keys of it may follow, and then lab.Web.
const noisy = `
[program.noisy]
command = ["sh", "-c", "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"]
ready = { method = "delay", delay = "50ms" }
stop = { timeout = "1s" }
`

// TestHangingDiskStopsNothingAndSupervisordExits has every kind of file that supervisord writes on a disk that hangs:
// one of this machine, or one of the network, where a close waits for an answer as well.
func TestHangingDiskStopsNothingAndSupervisordExits(t *testing.T) {
	t.Parallel()
	for kind, keys := range map[string]string{
		"plain path":  "stdout = \"DISK/log\"\n",
		"captured":    "stdout = \"capture\"\nlog = { file = \"DISK/log\" }\n",
		"status file": "stdout = \"null\"\ncompat.status_file = \"DISK/log\"\n",
	} {
		for where, network := range map[string]bool{"local": false, "network": true} {
			t.Run(kind+"/"+where, func(t *testing.T) {
				t.Parallel()
				m := lab.WithOwnBinary(t)
				disk := newDisk(t, network, m)
				m.Start(noisy + strings.ReplaceAll(keys, "DISK", disk.Dir) + lab.Web)
				worker := m.Await(lab.Says(lab.WorkerRuns), lab.Program("noisy")).PID
				m.AwaitN(2, lab.Says(lab.GenerationServes))
				m.Until("the disk has something", func() bool { return disk.Read("log") != "" })
				disk.Hang()
				defer time.AfterFunc(2*lab.Patience, disk.Resume).Stop() // so that a failing test ends too
				m.Signal(syscall.SIGUSR1)
				m.CtlOK("reload", "web", "--drained", "--timeout", "20s")
				m.CtlOK("scale", "noisy", "2") // changes its status file
				m.Until("the disk is asked", disk.Waits)
				if kind != "status file" {
					m.Await(lab.Says("output of workers is lost"), lab.Contains("does not take lines as fast as they come"))
					before := written(worker)
					m.Until("the worker continues to write", func() bool { return written(worker) > before+1<<20 })
				}
				if network {
					upgradesOnceItResumes(m, disk, kind != "status file")
				} else {
					failsOntoDisk(m, disk)
					m.Finish()
					m.Await(lab.Says(lab.ProgramStopped), lab.Program("noisy"))
					m.Await(lab.Says(lab.Ends))
				}
			})
		}
	}
}

// written is how many bytes a process has written.
func written(pid int) (n int) {
	_, text, _ := strings.Cut(lab.Text(proc.Path(pid, "io")), "wchar: ")
	fmt.Sscan(text, &n)
	return n
}

// failsOntoDisk fails unless a reload that would open a log on a disk that hangs fails with a reason.
func failsOntoDisk(m *lab.Supervisord, disk *hangingDisk) {
	m.T.Helper()
	m.Write(strings.Replace(lab.Web, "\n[[", "\nstdout = \""+disk.Path("new")+"\"\n[[", 1))
	m.Reload()
	want := "cannot open the log file " + disk.Path("new") + ": not within 10s"
	if failed := m.Await(lab.Says(lab.TrialFailed), lab.Program("web")); failed.Reason != want {
		m.T.Errorf("the log says %s, want %s", failed.Text, want)
	}
}

// upgradesOnceItResumes fails unless supervisord has no file of the disk open, which the exec of each worker would have
// to close, and unless an upgrade, which would wait for what is under way, is refused until the disk resumes.
func upgradesOnceItResumes(m *lab.Supervisord, disk *hangingDisk, logs bool) {
	m.T.Helper()
	for fd, path := range lab.Descriptors(m.T, m.PID()) {
		if logs && path == disk.Path("log") {
			m.T.Errorf("descriptor %d is %s, which every worker that starts has to close", fd, path)
		}
	}
	m.Upgrade(lab.UpgradeRefused)
	disk.Resume()
	if logs {
		m.Await(lab.Says("output of workers is lost"),
			lab.Contains("lines were lost: "+disk.Path("log")+" did not take them in time"))
	}
	m.Upgrade(lab.Upgraded)
	lab.Ask(m.T, m.Address(), "/")
}

// TestBlockedStderrStopsNothingAndLosesNothingOnceRead has the smallest possible pipe, without a reader, as stderr.
// O_NONBLOCK belongs to the open file, and Node sets it on inherited descriptors.
func TestBlockedStderrStopsNothingAndLosesNothingOnceRead(t *testing.T) {
	t.Parallel()
	for name, nonblocking := range map[string]bool{"blocking": false, "made non-blocking by another process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			lab.Must(t, syscall.Mkfifo(m.Path("stderr"), 0o600))
			stderr, err := os.OpenFile(m.Path("stderr"), os.O_RDWR, 0)
			lab.Must(t, err)
			defer stderr.Close()
			size, err := unix.FcntlInt(stderr.Fd(), unix.F_SETPIPE_SZ, 4096)
			lab.Must(t, err)
			m.Via = []string{"sh", "-c", `exec "$@" 2>` + m.Path("stderr"), "sh"}
			m.Start(lab.Web)
			m.Until("it answers", func() bool { _, code := m.Ctl("status"); return code == 0 })
			if nonblocking {
				lab.Must(t, unix.SetNonblock(lab.Steal(t, m.PID(), 2), true))
			}
			const reloads = 12
			for range reloads {
				m.CtlOK("reload", "--drained")
			}
			if waiting, err := unix.IoctlGetInt(int(stderr.Fd()), unix.TIOCINQ); err != nil || waiting < size-1000 {
				t.Errorf("only %d of %d bytes wait (%v): stderr is not full", waiting, size, err)
			}
			generations := make(chan int, 1)
			go func() { generations <- countGenerations(t, stderr) }()
			m.Finish()
			select {
			case n := <-generations:
				if n != 1+reloads {
					t.Errorf("%d generations began, want %d", n, 1+reloads)
				}
			case <-time.After(lab.Patience):
				t.Error("the end of the log has not arrived")
			}
		})
	}
}

// countGenerations reads a log to its end, and fails unless the generations begin one after the other.
func countGenerations(t *testing.T, log io.Reader) (n int) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var l lab.Entry
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
		}
		switch l.Msg {
		case lab.Ends:
			return n
		case lab.TrialBegan:
			if n++; l.Generation != n {
				t.Errorf("generation %d begins where %d was to come", l.Generation, n)
			}
		}
	}
	return n
}
