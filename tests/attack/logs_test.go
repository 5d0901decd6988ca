package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// watched makes the next start of m a start by systemd with WatchdogSec=1s.
func watched(m *lab.Supervisord) *fakeSystemd {
	sd := newSystemd(m.T)
	sd.Launches(m)
	m.Env = append(m.Env, "WATCHDOG_USEC=1000000")
	return sd
}

// lives fails unless supervisord answers, reloads another program and pings the watchdog.
func lives(m *lab.Supervisord, sd *fakeSystemd) {
	m.T.Helper()
	before := sd.Pings()
	m.Until("the watchdog is pinged", func() bool { return sd.Pings() > before+2 })
	m.CtlOK("status")
	m.CtlOK("reload", "web", "--drained", "--timeout", "20s")
}

func TestBlockedLogStopsNothing(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	sd := watched(m)
	lab.Must(t, syscall.Mkfifo(m.Path("fifo"), 0o600))
	m.Start(noisy + "workers = 8\nstdout = \"{dir}/fifo\"\n" + lab.Web)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("noisy"))
	m.Await(lab.Contains("does not take lines as fast as they come"))
	lives(m, sd)
	if out := m.CtlOK("status", "--json"); !strings.Contains(out, `"lost_lines"`) {
		t.Errorf("the status does not say that lines are lost: %s", out)
	}
}

func TestUpgradeIsRefusedWhileALogIsNotReadAndLosesNoLine(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	lab.Must(t, syscall.Mkfifo(m.Path("fifo"), 0o600))
	m.Start(`
[program.web]
command = ["sh", "-c", """
i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; printf unfinished; exec sleep 1000"""]
stdout = "{dir}/fifo"
ready = { method = "delay", delay = "10ms" }
`)
	worker := m.WorkerPID(1)
	m.Until("the worker has written everything", func() bool { return strings.HasPrefix(lab.Cmdline(worker), "sleep") })
	refused := m.Upgrade(lab.UpgradeRefused)
	if !strings.Contains(refused.Error, m.Path("fifo")+" does not take what was written: not within 2s") {
		t.Errorf("the log says %s", refused.Text)
	}
	// an ordinary reader would see the end of the file at the upgrade
	reader, err := os.OpenFile(m.Path("fifo"), os.O_RDWR, 0)
	lab.Must(t, err)
	defer reader.Close()
	read := readUntil(reader, "unfinished")
	m.Upgrade(lab.Upgraded) // it may take some until all is read
	m.Finish()
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintln(&want, "line", i)
	}
	if got := <-read; got != want.String()+"unfinished" {
		t.Errorf("%d bytes of %d arrived, ending in %q", len(got), want.Len()+len("unfinished"), got[max(0, len(got)-30):])
	}
}

func TestTERMDuringTheLastStepsOfAnUpgradeIsObeyed(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	lab.Must(t, syscall.Mkfifo(m.Path("fifo"), 0o600))
	m.Start(`
[program.web]
command = ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exec sleep 1000"]
stdout = "{dir}/fifo"
ready = { method = "delay", delay = "10ms" }
`)
	worker := m.WorkerPID(1)
	m.Until("the worker has written everything", func() bool { return strings.HasPrefix(lab.Cmdline(worker), "sleep") })
	m.Signal(syscall.SIGUSR2)
	m.Await(lab.Says("executing the new binary")) // and now it waits up to 2 s until the log is read
	m.Signal(syscall.SIGTERM)
	reader, err := os.OpenFile(m.Path("fifo"), os.O_RDWR, 0)
	lab.Must(t, err)
	defer reader.Close()
	go io.Copy(io.Discard, reader) //nolint:errcheck // it ends with the test
	m.Ends(0)
}

// locksItsStdout is a worker that writes from memory whose content never arrives (userfaultfd(2)), which keeps its pipe
// locked. It does nothing until the file {dir}/attack exists.
const locksItsStdout = `
import ctypes, os, platform, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
class iovec(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]
if os.path.exists('attack'):
    page = libc.mmap(None, 8192, 3, 0x22, -1, 0)
    fault = libc.syscall({'x86_64': 323, 'aarch64': 282}[platform.machine()], 0o4000)
    libc.ioctl(fault, ctypes.c_ulong(0xC018AA3F), (ctypes.c_uint64 * 3)(0xAA, 0, 0))
    libc.ioctl(fault, ctypes.c_ulong(0xC020AA00), (ctypes.c_uint64 * 4)(page + 4096, 4096, 1, 0))
    pieces = (iovec * 2)(iovec(page, 4096), iovec(page + 4096, 4096))
    os.write(int(os.environ['NOTIFY_FD']), b'\n')
    libc.write(1, b'wake up\n', 8)
    libc.writev(1, pieces, 2)
os.write(int(os.environ['NOTIFY_FD']), b'\n')
time.sleep(1000)
`

func TestUpgradeNamesTheWorkerThatKeepsItsStdoutLocked(t *testing.T) {
	t.Parallel()
	lab.Need(t, "python3")
	fault, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		t.Skip("userfaultfd cannot be used here: ", errno)
	}
	unix.Close(int(fault))
	m := lab.WithOwnBinary(t)
	lab.Must(t, os.WriteFile(m.Path("worker.py"), []byte(locksItsStdout), 0o600))
	lab.Must(t, os.WriteFile(m.Path("attack"), nil, 0o600))
	m.Start(`
[program.locker]
command = ["python3", "worker.py"]
directory = "{dir}"
workers = 8
stdout = "capture"
ready = { method = "notify" }
`)
	var workers []int
	for i := range 8 { // so that at least one pipe is read while it is locked
		workers = append(workers, m.Await(lab.Says(lab.WorkerReady), func(e lab.Entry) bool { return e.Worker == i+1 }).PID)
	}
	m.Await(lab.Says(lab.GenerationServes))
	m.Until("a thread of supervisord waits for a pipe", func() bool {
		threads, _ := filepath.Glob(proc.Path(m.PID(), "task/*/stat"))
		return slices.ContainsFunc(threads, func(path string) bool {
			stat, _ := os.ReadFile(path)
			return strings.Contains(string(stat), ") D ")
		})
	})
	refused := m.Upgrade(lab.UpgradeRefused)
	if !slices.ContainsFunc(workers,
		func(pid int) bool { return strings.Contains(refused.Error, fmt.Sprintf("stdout of process %d", pid)) }) {
		t.Errorf("the log names no worker: %s", refused.Text)
	}
	lab.Must(t, os.Remove(m.Path("attack")))
	for _, pid := range workers {
		lab.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	m.Until("all workers are replaced", func() bool { return m.Count(lab.Says(lab.WorkerReady)) == 2*len(workers) })
	m.Upgrade(lab.Upgraded)
	m.Finish()
}

// TestHangingDiskStopsNothingAndSupervisordExits has every kind of file that supervisord writes on the disk.
func TestHangingDiskStopsNothingAndSupervisordExits(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]string{
		"plain path":  "stdout = \"DISK/log\"\n",
		"captured":    "stdout = \"capture\"\nlog = { file = \"DISK/log\" }\n",
		"status file": "stdout = \"null\"\ncompat.status_file = \"DISK/log\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			sd, disk := watched(m), newDisk(t, m)
			m.Start(noisy + strings.ReplaceAll(keys, "DISK", disk.Dir) + lab.Web)
			m.Await(lab.Says(lab.GenerationServes), lab.Program("noisy"))
			m.Until("the disk has something", func() bool { return disk.Read("log") != "" })
			disk.Hang()
			defer time.AfterFunc(2*lab.Patience, disk.Resume).Stop() // so that a failing test ends too
			m.Signal(syscall.SIGUSR1)
			lives(m, sd)
			m.CtlOK("scale", "noisy", "2") // changes its status file
			m.Finish()
			m.Await(lab.Says(lab.ProgramStopped), lab.Program("noisy"))
			m.Await(lab.Says(lab.Ends))
		})
	}
}

func TestReloadOntoADiskThatHangsFailsWithAReason(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	disk := newDisk(t, m)
	m.Start(lab.Web)
	m.Serves(1)
	disk.Hang()
	m.Write(strings.Replace(lab.Web, "\n[[", "\nstdout = \""+disk.Path("log")+"\"\n[[", 1))
	m.Reload()
	if failed := m.Await(lab.Says(lab.TrialFailed), lab.Gen(2)); failed.Reason != "cannot open the log file "+
		disk.Path("log")+": not within 10s" {
		t.Errorf("the log says %s", failed.Text)
	}
	m.Untouched(m.WorkerPID(1))
}

// TestWorkersStartWhileANetworkDiskWithALogHangs uses a file system that writes a file out when a descriptor of it is
// closed. The exec of a worker closes all descriptors of supervisord.
func TestWorkersStartWhileANetworkDiskWithALogHangs(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]string{
		"plain path": "stdout = \"DISK/log\"\n",
		"captured":   "stdout = \"capture\"\nlog = { file = \"DISK/log\" }\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			sd, disk := watched(m), newNetworkDisk(t, m)
			m.Start(noisy + strings.ReplaceAll(keys, "DISK", disk.Dir) + lab.Web)
			m.Await(lab.Says(lab.GenerationServes), lab.Program("noisy"))
			m.Until("the disk has something", func() bool { return disk.Read("log") != "" })
			for fd, path := range lab.Descriptors(t, m.PID()) {
				if path == disk.Path("log") {
					t.Errorf("descriptor %d is %s, which every worker that starts has to close", fd, path)
				}
			}
			disk.Hang()
			m.Signal(syscall.SIGUSR1)
			lives(m, sd)
		})
	}
}

// TestUpgradeIsRefusedWhileANetworkDiskHangs has files open that the execve itself would have to close.
func TestUpgradeIsRefusedWhileANetworkDiskHangs(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]string{
		"plain path":  "stderr = \"DISK/log\"",
		"captured":    "stderr = \"capture\"\nlog = { file = \"DISK/log\" }",
		"status file": "compat.status_file = \"DISK/log\"",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.WithOwnBinary(t)
			disk := newNetworkDisk(t, m)
			m.Start(strings.Replace(lab.WebWith("say=line"), "\n[[", "\n"+strings.ReplaceAll(keys, "DISK", disk.Dir)+"\n[[", 1))
			worker := m.WorkerPID(1)
			m.Until("the disk has something", func() bool { return disk.Read("log") != "" })
			disk.Hang()
			if name == "status file" {
				m.CtlOK("scale", "web", "2")
				m.Until("the status file is being written", disk.Waits)
			}
			m.Upgrade(lab.UpgradeRefused)
			m.Untouched(worker)
			disk.Resume()
			m.Upgrade(lab.Upgraded)
			m.Untouched(worker)
		})
	}
}

// unread starts supervisord with the smallest possible pipe, without a reader, as its stderr.
func unread(t *testing.T, config string) (m *lab.Supervisord, stderr *os.File) {
	t.Helper()
	m = lab.Prepare(t)
	lab.Must(t, syscall.Mkfifo(m.Path("stderr"), 0o600))
	stderr, err := os.OpenFile(m.Path("stderr"), os.O_RDWR, 0)
	lab.Must(t, err)
	t.Cleanup(func() { stderr.Close() })
	_, err = unix.FcntlInt(stderr.Fd(), unix.F_SETPIPE_SZ, 4096)
	lab.Must(t, err)
	m.Via = []string{"sh", "-c", `exec "$@" 2>` + m.Path("stderr"), "sh"}
	m.Start(config)
	m.Until("it answers", func() bool { _, code := m.Ctl("status"); return code == 0 })
	return m, stderr
}

// readUntil reads until the text ends with last, and sends it; after two minutes, nothing.
func readUntil(r io.Reader, last string) <-chan string {
	read := make(chan string, 2)
	time.AfterFunc(2*time.Minute, func() { read <- "" })
	go func() {
		var text []byte
		for buf := make([]byte, 65536); !bytes.HasSuffix(text, []byte(last)); {
			n, err := r.Read(buf)
			if err != nil {
				break
			}
			text = append(text, buf[:n]...)
		}
		read <- string(text)
	}()
	return read
}

// full waits until nothing more fits into a pipe.
func full(m *lab.Supervisord, pipe *os.File) {
	m.T.Helper()
	m.Until("stderr is full", func() bool {
		m.CtlOK("reload", "--drained")
		n, err := unix.FcntlInt(pipe.Fd(), unix.F_GETPIPE_SZ, 0)
		lab.Must(m.T, err)
		waiting, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		lab.Must(m.T, err)
		return waiting > n-1000
	})
}

func TestBlockedStderrStopsNothingAndLosesNothingOnceRead(t *testing.T) {
	t.Parallel()
	m, stderr := unread(t, lab.Web)
	full(m, stderr)
	readsOn(m, stderr)
}

// TestNonblockingStderrLosesNoLine: O_NONBLOCK belongs to the open file, and Node sets it on inherited descriptors.
func TestNonblockingStderrLosesNoLine(t *testing.T) {
	t.Parallel()
	m, stderr := unread(t, lab.Web)
	theirs := lab.Steal(t, m.PID(), 2)
	lab.Must(t, unix.SetNonblock(theirs, true))
	full(m, stderr)
	readsOn(m, stderr)
}

// readsOn fails unless reloads work and every line of the log arrives once stderr is read again.
func readsOn(m *lab.Supervisord, stderr *os.File) {
	m.T.Helper()
	for range 5 {
		m.CtlOK("reload", "--drained")
	}
	read := readUntil(stderr, lab.Ends+"\"}\n")
	m.Finish()
	next := 1
	for text := range strings.Lines(<-read) {
		var l lab.Entry
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			m.T.Errorf("%q: %v", text, err)
		}
		if l.Msg != lab.TrialBegan {
			continue
		}
		if l.Generation != next {
			m.T.Errorf("generation %d begins where %d was to come", l.Generation, next)
		}
		next++
	}
	if next < 7 {
		m.T.Errorf("%d generations began", next-1)
	}
}

func TestSupervisordExitsWhileItsStderrIsBlocked(t *testing.T) {
	t.Parallel()
	m, stderr := unread(t, lab.Web)
	full(m, stderr)
	m.Finish()
}

// TestLogReportsHowManyLinesWereDropped has a preflight that writes more to stderr than the buffer holds.
func TestLogReportsHowManyLinesWereDropped(t *testing.T) {
	t.Parallel()
	m, stderr := unread(t, lab.Plain+
		"reload.preflight = [\"sh\", \"-c\", \"yes $(printf %0200d 0) | head -n 100000 >&2\"]\n")
	m.Until("it serves", func() bool { return strings.Contains(m.CtlOK("status"), "web up, generation 1") })
	said := make(chan lab.Entry)
	go func() {
		for in := json.NewDecoder(onlyJSON(stderr)); ; {
			var l struct {
				lab.Entry
				Lines int
			}
			if err := in.Decode(&l); err != nil || l.Lines > 0 {
				l.Worker = l.Lines
				said <- l.Entry
				return
			}
		}
	}()
	select {
	case l := <-said:
		if l.Msg != "log lines were dropped: stderr was not read" || l.Level != "warn" || l.Worker < 50_000 {
			t.Errorf("the log says %+v", l)
		}
	case <-time.After(lab.Patience):
		t.Error("the log says nothing")
	}
	go io.Copy(io.Discard, stderr) //nolint:errcheck // until the end
}

// onlyJSON keeps only the lines that are JSON objects.
func onlyJSON(r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		var rest []byte
		for buf := make([]byte, 65536); ; {
			n, err := r.Read(buf)
			if err != nil {
				in.CloseWithError(err)
				return
			}
			rest = append(rest, buf[:n]...)
			for {
				line, more, found := bytes.Cut(rest, []byte("\n"))
				if !found {
					break
				}
				if bytes.HasPrefix(line, []byte("{")) {
					in.Write(line)
				}
				rest = more
			}
		}
	}()
	return out
}

func TestLogCommandThatDoesNotReadStopsNothing(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.Launch("start_server", "--port=0", "--interval=1", "--status-file=status",
		"--log-file=| while [ ! -e end ]; do sleep 0.05; done",
		"--", "sh", "-c", "yes & trap 'kill $!; exit' TERM; wait")
	generation := func(n int) func() bool {
		return func() bool { return strings.HasPrefix(lab.Text(m.Path("status")), fmt.Sprintf("%d:", n)) }
	}
	for n := 1; n <= 4; n++ {
		m.Until(fmt.Sprintf("generation %d serves", n), generation(n))
		m.Signal(syscall.SIGHUP)
	}
	m.Signal(syscall.SIGTERM)
	m.Until("the workers have gone", func() bool { return !lab.Exists(m.Path("status")) })
	m.File("end", "")
	m.Ends(0)
}

func TestLogNeverFollowsALinkOfTheWorkersUser(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	m := lab.Prepare(t)
	lab.Must(t, os.Mkdir(m.Path("logs"), 0o755))
	lab.Must(t, os.Chown(m.Path("logs"), 65534, 65534))
	lab.Must(t, os.WriteFile(m.Path("keys"), []byte("root's key\n"), 0o600))
	config := `
[program.web]
command = ["sh", "-c", "while :; do echo the key of an attacker; sleep 0.01; done"]
user = "nobody"
stdout = "{dir}/logs/out.log"
ready = { method = "delay", delay = "10ms" }
`
	m.Start(config)
	m.Serves(1)
	m.Until("the log file has text", func() bool { return lab.Size(m.Path("logs/out.log")) > 0 })
	attack := exec.Command("sh", "-c", "mv logs/out.log logs/out.log.1 && ln -s ../keys logs/out.log")
	attack.Dir, attack.SysProcAttr = m.Dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	lab.Must(t, attack.Run())
	m.Signal(syscall.SIGUSR1)
	refused := m.Await(lab.Says("cannot reopen log file; the old one stays in use"))
	if !strings.Contains(refused.Error,
		"out.log is a symbolic link of another user (UID 65534): replace the link with a file") {
		t.Errorf("the log says %s", refused.Text)
	}
	grown := lab.Size(m.Path("logs/out.log.1"))
	m.Until("the old file grows", func() bool { return lab.Size(m.Path("logs/out.log.1")) > grown })
	m.Reload()
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(2), lab.Contains("is a symbolic link of another user"))
	if got := m.Read("keys"); got != "root's key\n" {
		t.Errorf("root's file has %q", got)
	}
}

func TestLogsOnATerminalShowsControlCharactersInsteadOfSendingThem(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `
[program.web]
command = ["sh", "-c", "printf '\\033]52;c;cm0gLXJmIH4=\\007 \\033[31mred\\n'; exec sleep 1000"]
stdout = "capture"
ready = { method = "delay", delay = "10ms" }
`)
	m.Serves(1)
	const written = "\x1b]52;c;cm0gLXJmIH4=\a \x1b[31mred"
	m.Until("the line was read", func() bool { return m.CtlOK("logs", "web") == written+"\n" })
	for flag, want := range map[string]string{"--lines=9": "^[]52;c;cm0gLXJmIH4=^G \x1b[31mred\x1b[0m", "--raw": written} {
		argv := append(lab.TerminalCommand(t), lab.Built.Supervisord, "logs", "web", flag, "-c", m.Path("config.toml"))
		c := exec.Command(argv[0], argv[1:]...)
		c.Env = m.Environ()
		out, err := c.CombinedOutput()
		if err != nil || strings.TrimRight(string(out), "\r\n") != want {
			t.Errorf("%s: %q, %v", flag, out, err)
		}
	}
}

func TestLogIsClosedOnceNothingIsCaptured(t *testing.T) {
	t.Parallel()
	plain := strings.Replace(lab.Plain, "{sleep}", `"sh", "-c", "echo line; exec sleep 1000"`, 1)
	captured := plain + "stdout = \"capture\"\nlog = { file = \"web.log\" }\n"
	m := lab.Start(t, captured)
	m.Serves(1)
	open := func() (n int) {
		for _, path := range lab.Descriptors(t, m.PID()) {
			if path == m.Path("web.log") {
				n++
			}
		}
		return n
	}
	for generation := 2; generation < 8; generation += 2 {
		m.Until("the log is open", func() bool { return open() == 1 })
		m.Write(plain)
		m.Reload()
		m.Gone(generation - 1)
		m.Until("the log is closed", func() bool { return open() == 0 })
		m.CtlFails(1, []string{"no output of program web is captured"}, "logs", "web")
		m.Write(captured)
		m.Reload()
		m.Gone(generation)
	}
}

func TestHungDiskDoesNotHoldUpAWorker(t *testing.T) {
	t.Parallel()
	for name, stdout := range map[string]string{
		"plain path": "stdout = \"DISK/log\"\n",
		"captured":   "stdout = \"capture\"\nlog = { file = \"DISK/log\" }\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			disk := newDisk(t, m)
			m.File("flood", "read x < {dir}/go; head -c 20000000 /dev/zero | tr '\\0' '\\n'; echo done > {dir}/done; exec "+
				"sleep 1000\n")
			lab.Must(t, syscall.Mkfifo(m.Path("go"), 0o600))
			m.Start("[program.web]\ncommand = [\"sh\", \"{dir}/flood\"]\n" + strings.ReplaceAll(stdout, "DISK", disk.Dir) +
				"[program.web.ready]\ndelay = \"50ms\"\n")
			m.Serves(1)
			disk.Hang()
			lab.Must(t, os.WriteFile(m.Path("go"), []byte("\n"), 0))
			m.Until("the worker has written everything", func() bool { return lab.Exists(m.Path("done")) })
			m.Await(lab.Says("output of workers is lost"), lab.Contains("does not take lines as fast as they come"))
			disk.Resume()
			m.Await(lab.Says("output of workers is lost"),
				lab.Contains("lines were lost: "+disk.Path("log")+" did not take them in time"))
		})
	}
}
