package observe

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/browser"
	"example.org/supervisord/internal/observe/page"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func TestMain(m *testing.M) { lab.Main(browsing{m}) }

// browsing ends the browser, too.
type browsing struct{ *testing.M }

func (b browsing) Run() int { return browser.Main(b.M) }

// master is a supervisord whose program is the example worker.
type master struct {
	*lab.Supervisord
	http string // the address of the metrics and the page
}

// start starts one with these settings of [supervisor] and tables of the program.
func start(t *testing.T, settings, program string) *master {
	t.Helper()
	m := &master{Supervisord: lab.Prepare(t)}
	m.Start(configuration(settings, program))
	if strings.Contains(settings, "http") {
		m.http = "http://" + m.await(`"metrics and the page are served","address":"([^"]+)"`)
	}
	m.Serves(1)
	return m
}

func configuration(settings, program string) string {
	return settings + "\n[program.web]\ncommand = [{hello}" + program + `
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
timeout = "20s"
`
}

// await returns the first group of the first matching line.
func (m *master) await(pattern string) string {
	m.T.Helper()
	want := regexp.MustCompile(pattern)
	return want.FindStringSubmatch(m.Await(func(l lab.Entry) bool { return want.MatchString(l.Text) }).Text)[1]
}

// kill kills a worker.
func (m *master) kill(pid string) {
	m.T.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil || n < 2 {
		m.T.Fatalf("%q is not a PID", pid)
	}
	lab.Must(m.T, syscall.Kill(n, syscall.SIGKILL))
}

func (m *master) get(path string) string {
	m.T.Helper()
	answer, err := http.Get(m.http + path)
	lab.Must(m.T, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	lab.Must(m.T, err)
	return string(body)
}

func (m *master) state() *page.View {
	m.T.Helper()
	st := new(page.View)
	lab.Must(m.T, json.Unmarshal([]byte(m.get("/state")), st))
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
	load := lab.PressNew(t, at, 1, 5*time.Millisecond)
	m.Reload()
	m.Serves(2)
	letGo()
	line := m.await(`("msg":"reload report".*"generation":2,.*)`)
	load.Lossless(t)
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
	m.T.Helper()
	list := m.state().Status.Program("web").Reloads
	return list[len(list)-1]
}

// hold sends a request that keeps its worker busy until the returned function is called.
func hold(t *testing.T, at string) (letGo func()) {
	t.Helper()
	c := &lab.Connection{Address: at}
	lab.Must(t, c.Connect())
	t.Cleanup(c.Close)
	_, err := io.WriteString(c.Conn, "GET /slow?d=1h HTTP/1.1\r\nHost: x\r\n\r\n")
	lab.Must(t, err)
	lab.AwaitAccepted(t, at)
	return c.Close
}

func TestKilledWorkerIsInTheReceipt(t *testing.T) {
	t.Parallel()
	m := start(t, onHTTP, `, "-linger", "1m", "-deadline", "1m"]
[program.web.stop]
timeout = "300ms"`)
	defer hold(t, m.address())()
	m.Reload()
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
		m.Until(fmt.Sprintf("%d hooks", n), func() bool {
			text, _ := os.ReadFile(m.Path("told"))
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
	m.Write(configuration("", `, "-fail"]`+table))
	m.Reload()
	if got := told(2)[1]; got.Hook != "reload_failed" || got.Receipt == nil || got.Receipt.Outcome != program.WorkerDown ||
		got.Event.Step != "start" {
		t.Errorf("after a failure: %+v", got)
	}
	worker := m.WorkerPID(1)
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
		for i := 0; i < 6 && least > 0; i++ {
			before := lab.Switches(t, m.PID())
			time.Sleep(time.Second)
			least = min(least, lab.Switches(t, m.PID())-before)
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
