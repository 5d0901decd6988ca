package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/browser"
	"example.org/supervisord/internal/observe/page"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// built is the directory of the programs under test.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := browser.Main(m)
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

func build(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "sv"); built.err != nil {
			return
		}
		for module, program := range map[string]string{"../..": "./cmd/supervisord", "../../examples": "./hello"} {
			if out, err := exec.Command("go", "build", "-C", module, "-o", built.dir+"/", program).CombinedOutput(); err != nil {
				built.err = fmt.Errorf("%w\n%s", err, out)
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// patience limits the wait for anything that should be immediate: the machine may be busy.
const patience = 30 * time.Second

// master is a supervisord in a private directory.
type master struct {
	*testing.T
	dir     string
	cmd     *exec.Cmd
	mu      sync.Mutex
	log     []string
	arrived chan struct{} // closed at the next line
	http    string        // the address of the metrics and the page
}

// start starts the example worker with these settings of [supervisor] and tables of the program.
func start(t *testing.T, settings, program string) *master {
	t.Helper()
	bin := build(t)
	dir, err := os.MkdirTemp("", "sv")
	if err != nil {
		t.Fatal(err)
	}
	m := &master{T: t, dir: dir, arrived: make(chan struct{})}
	m.configure(settings, program)
	m.cmd = exec.Command(filepath.Join(bin, "supervisord"), "run", "-c", m.path("c.toml"))
	out, err := m.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.cmd.Stdout = m.cmd.Stderr
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { m.read(out) })
	t.Cleanup(func() {
		m.cmd.Process.Signal(syscall.SIGTERM)
		reading.Wait()
		if err := m.cmd.Wait(); err != nil {
			t.Errorf("supervisord exited with %v", err)
		}
		if t.Failed() {
			t.Log(strings.Join(m.log, "\n"))
		}
		os.RemoveAll(dir)
	})
	if strings.Contains(settings, "http") {
		m.http = "http://" + m.await(`"metrics and the page are served","address":"([^"]+)"`)
	}
	m.await(`"generation serves".*"generation":(1),`)
	return m
}

func (m *master) path(name string) string { return filepath.Join(m.dir, name) }

func (m *master) configure(settings, program string) {
	m.Helper()
	text := fmt.Sprintf(`[supervisor]
runtime_dir = "run"
%s
[program.web]
command = ["%s/hello"%s
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
timeout = "20s"
`, settings, built.dir, program)
	if err := os.WriteFile(m.path("c.toml"), []byte(text), 0o644); err != nil {
		m.Fatal(err)
	}
}

// ask runs a subcommand of supervisord.
func (m *master) ask(args ...string) {
	m.Helper()
	if out, err := exec.Command(filepath.Join(built.dir, "supervisord"),
		append(args, "-c", m.path("c.toml"))...).CombinedOutput(); err != nil {
		m.Fatalf("%q: %v\n%s", args, err, out)
	}
}

func (m *master) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m.mu.Lock()
		m.log = append(m.log, lines.Text())
		close(m.arrived)
		m.arrived = make(chan struct{})
		m.mu.Unlock()
	}
}

// await returns the first group of the first matching line.
func (m *master) await(pattern string) string {
	m.Helper()
	want := regexp.MustCompile(pattern)
	timeout := time.After(patience)
	for {
		m.mu.Lock()
		arrived := m.arrived
		for _, line := range m.log {
			if found := want.FindStringSubmatch(line); found != nil {
				m.mu.Unlock()
				return found[len(found)-1]
			}
		}
		m.mu.Unlock()
		select {
		case <-arrived:
		case <-timeout:
			m.Fatalf("nothing in the log is like %s", pattern)
		}
	}
}

func (m *master) signal(sig syscall.Signal) { m.cmd.Process.Signal(sig) }

// kill kills a worker.
func (m *master) kill(pid string) {
	m.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil || n < 2 {
		m.Fatalf("%q is not a PID", pid)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		m.Fatal(err)
	}
}

func (m *master) get(path string) string {
	m.Helper()
	answer, err := http.Get(m.http + path)
	if err != nil {
		m.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		m.Fatal(err)
	}
	return string(body)
}

func (m *master) state() *page.View {
	m.Helper()
	st := new(page.View)
	if err := json.Unmarshal([]byte(m.get("/state")), st); err != nil {
		m.Fatal(err)
	}
	return st
}

// address returns the address of the program.
func (m *master) address() string { return m.state().Status.Programs[0].Listeners[0].Address }

const onHTTP = `http = "127.0.0.1:0"`

func TestReceiptOfReloadUnderLoad(t *testing.T) {
	t.Parallel()
	m := start(t, onHTTP, `]
workers = 2
[program.web.stop]
timeout = "20s"`)
	at := m.address()
	letGo := hold(t, at)
	eventually(t, "the request has been accepted", func() bool { return strings.Contains(ss(at), "ESTAB") })
	stop, lost := make(chan struct{}), make(chan error, 1)
	go load(at, stop, lost)
	m.signal(syscall.SIGHUP)
	eventually(t, "the new generation serves",
		func() bool { return m.newest().Generation == 2 && m.newest().Outcome == program.Serves })
	letGo()
	line := m.await(`("msg":"reload report".*"generation":2,.*)`)
	close(stop)
	if err := <-lost; err != nil {
		t.Error(err)
	}
	r := m.newest()
	if r.Generation != 2 || r.Replaced != 1 || r.Outcome != program.Serves || r.Reason != "HUP" || r.Took <= 0 ||
		r.SpawnToReady <= 0 || r.SpawnToReady > r.Took ||
		r.Overlap < r.Drain || r.Killed > 0 {
		t.Errorf("the receipt is %+v", r)
	}
	if !strings.Contains(line, `"replaced":1,"outcome":"serves","reason":"HUP"`) {
		t.Errorf("the log says %s", line)
	}
}

// newest is the record of the newest reload of web.
func (m *master) newest() program.ReloadRecord {
	m.Helper()
	list := m.state().Status.Program("web").Reloads
	return list[len(list)-1]
}

// hold sends a request that keeps its worker busy until the returned function is called.
func hold(t *testing.T, at string) (letGo func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/slow?d=1h", nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if answer, err := http.DefaultTransport.RoundTrip(request); err == nil {
			answer.Body.Close()
		}
	}()
	return func() { cancel(); <-done }
}

// load sends requests one after the other, each over a new connection.
func load(at string, stop <-chan struct{}, lost chan<- error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		select {
		case <-stop:
			lost <- nil
			return
		default:
		}
		answer, err := client.Get("http://" + at + "/")
		if err != nil {
			lost <- err
			return
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		time.Sleep(5 * time.Millisecond)
	}
}

// ss counts the established connections to an address in /proc.
func ss(address string) string {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	text, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && f[3] == "01" {
			return "ESTAB"
		}
	}
	return ""
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}

func TestKilledWorkerIsInTheReceipt(t *testing.T) {
	t.Parallel()
	m := start(t, onHTTP, `, "-linger", "1m", "-deadline", "1m"]
[program.web.stop]
timeout = "300ms"`)
	at := m.address()
	defer hold(t, at)()
	eventually(t, "the request has been accepted", func() bool { return ss(at) != "" })
	m.signal(syscall.SIGHUP)
	m.await(`("reload report").*"generation":2,.*"killed":1,`)
	r := m.newest()
	if r.Killed != 1 || r.Kills[0].Generation != 1 || !strings.Contains(r.Kills[0].Reason, "still there") {
		t.Errorf("killed are %+v", r.Kills)
	}
	if text := m.get("/metrics"); !strings.Contains(text, "\nsupervisord_worker_kills_total{program=\"web\"} 1\n") ||
		!strings.Contains(text, `supervisord_reloads_total{outcome="serves",program="web"} `) {
		t.Errorf("the metrics are\n%s", text)
	}
}

// hookMessage is what a hook reads.
type hookMessage struct {
	Hook    string
	Receipt *receipt.Receipt
	Event   *supervisor.Update
}

func TestHooksOfBuiltBinary(t *testing.T) {
	t.Parallel()
	const table = `
[program.web.hooks]
after_reload   = ["sh", "-c", "tr -d '\\n' >>told; echo >>told"]
reload_failed  = ["sh", "-c", "tr -d '\\n' >>told; echo >>told"]
worker_crashed = ["sh", "-c", """tr -d '\\n' >>told; echo >>told
echo $SUPERVISORD_HOOK $SUPERVISORD_PROGRAM >&2; exit 1"""]`
	m := start(t, "", "]"+table)
	told := func(n int) []hookMessage {
		var all []hookMessage
		eventually(t, fmt.Sprintf("%d hooks", n), func() bool {
			text, _ := os.ReadFile(m.path("told"))
			all = nil
			for line := range strings.Lines(string(text)) {
				var one hookMessage
				if json.Unmarshal([]byte(line), &one) == nil {
					all = append(all, one)
				}
			}
			return len(all) >= n
		})
		return all
	}
	if got := told(1)[0]; got.Hook != "after_reload" || got.Receipt.Replaced != 0 {
		t.Errorf("after the start: %+v", got)
	}
	m.configure("", `, "-fail"]`+table)
	m.signal(syscall.SIGHUP)
	if got := told(2)[1]; got.Hook != "reload_failed" || got.Receipt == nil || got.Receipt.Outcome != program.WorkerDown ||
		got.Event.Step != "start" {
		t.Errorf("after a failure: %+v", got)
	}
	worker, err := strconv.Atoi(m.await(`"worker is ready".*"pid":(\d+)`))
	if err != nil {
		t.Fatal(err)
	}
	m.kill(strconv.Itoa(worker))
	if got := told(3)[2]; got.Hook != "worker_crashed" || got.Event.PID != worker ||
		got.Event.Reason != "killed by SIGKILL" {
		t.Errorf("after a crash: %+v", got)
	}
	if said := m.await(`"hook failed".*"stderr":\[(.*)\]`); said != `"worker_crashed web"` {
		t.Errorf("the failed hook printed %s", said)
	}
}

// TestNothingWakesUpWhileNobodyLooks uses the counters of the kernel. The Go runtime wakes up occasionally (a forced
// collection every two minutes), and memory is returned once after the start.
func TestNothingWakesUpWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	quiet := func(settings string) int {
		m := start(t, settings, "]")
		if settings != "" {
			m.get("/metrics")
			http.DefaultClient.CloseIdleConnections()
		}
		least := 1 << 30
		for range 6 {
			before := switches(t, m.cmd.Process.Pid)
			time.Sleep(time.Second)
			least = min(least, switches(t, m.cmd.Process.Pid)-before)
		}
		return least
	}
	if n := quiet(""); n > 0 {
		t.Errorf("without http: woken %d times in each second", n)
	}
	if n := quiet(onHTTP); n > 0 {
		t.Errorf("with http: woken %d times in each second", n)
	}
}

// switches returns the voluntary context switches of all threads of a process.
func switches(t *testing.T, pid int) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, file := range files {
		text, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, _ := strconv.Atoi(strings.TrimSpace(line))
		sum += n
	}
	return sum
}
