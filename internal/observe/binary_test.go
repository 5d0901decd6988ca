package observe

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/browser"
	"example.org/supervisord/internal/observe/page"
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
timeout = "2m"
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
