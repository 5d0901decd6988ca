package prove_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/prove"
	"example.org/supervisord/worker/graceful"
)

// TestMain runs the tests. Started by supervisord, it is the worker that a test requested.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "worker" {
		workers[os.Args[2]]()
		return
	}
	lab.Main(m)
}

// workers lists programs that harm their clients, except tcp.
var workers = map[string]func(){
	"shutdown": func() {
		s, term := serveHTTP(http.HandlerFunc(hi))
		<-term
		s.Shutdown(context.Background())
	},
	"exit": func() { // with requests in hand, always
		_, term := serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(20 * time.Millisecond)
			hi(w, r)
		}))
		<-term
		os.Exit(0)
	},
	"busy": func() { // answers 503 from TERM on, and ends 200 ms after the first
		leaving, answered := make(chan struct{}), make(chan struct{})
		once := sync.OnceFunc(func() { close(answered) })
		_, term := serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-leaving:
				w.WriteHeader(http.StatusServiceUnavailable)
				once()
			default:
				hi(w, r)
			}
		}))
		<-term
		close(leaving)
		select {
		case <-answered:
		case <-time.After(10 * time.Second): // no client has come back
		}
		time.Sleep(200 * time.Millisecond)
		os.Exit(0)
	},
	"early": func() { // reports readiness fifty requests too early, except in the first generation, which prove needs
		var asked atomic.Int32
		s, term := serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if os.Getenv("SUPERVISORD_GENERATION") != "1" && asked.Add(1) <= 50 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			hi(w, r)
		}))
		<-term
		s.Shutdown(context.Background())
	},
	"own": func() { // opens a port of its own, and closes it before the next worker opens it
		ln := must.Be(net.Listen("tcp", os.Getenv("OWN_ADDRESS")))
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		s := &http.Server{Handler: http.HandlerFunc(hi)}
		go s.Serve(ln)
		if err := graceful.Ready(); err != nil {
			panic(err)
		}
		<-term
		s.Shutdown(context.Background())
		time.Sleep(200 * time.Millisecond)
	},
	"slow": func() { // takes 2 s to begin, except in the first generation, which prove needs
		if os.Getenv("SUPERVISORD_GENERATION") != "1" {
			time.Sleep(2 * time.Second)
		}
		s, term := serveHTTP(http.HandlerFunc(hi))
		<-term
		s.Shutdown(context.Background())
	},
	"litter": func() { // leaves a process in another session behind, for longer than a slow test lasts
		c := exec.Command("sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_, term := serveHTTP(http.HandlerFunc(hi))
		if err := c.Start(); err != nil {
			panic(err)
		}
		<-term
	},
	"stubborn": func() { // lives until it is killed, always with requests in hand: after TERM it answers none
		told := make(chan struct{})
		_, term := serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			select {
			case <-told:
				select {}
			default:
				hi(w, r)
			}
		}))
		<-term
		close(told)
		select {}
	},
	"tcp": func() {
		ln := must.Be(graceful.Listener("web", ""))
		graceful.Serve(context.Background(), graceful.Conns(ln, func(_ context.Context, c net.Conn) {
			io.WriteString(c, "welcome\n")
			io.Copy(io.Discard, c)
		}))
	},
}

func hi(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hi") }

func serveHTTP(h http.Handler) (*http.Server, <-chan os.Signal) {
	ln := must.Be(graceful.Listener("web", ""))
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	s := &http.Server{Handler: h}
	go s.Serve(ln)
	if err := graceful.Ready(); err != nil {
		panic(err)
	}
	return s, term
}

// site is a configuration, with which a supervisord may run.
type site struct {
	*lab.Supervisord
	address string
}

// briefDrain is in every configuration: workers that lose requests do so soon.
const briefDrain = `drain.timeout = "1s"`

// noDrain has workers told with requests in hand.
const noDrain = `drain.timeout = "0s"`

// briefStop has workers killed soon.
const briefStop = `stop = { timeout = "200ms" }`

// newSite writes a configuration for two workers; more is appended under [program.web].
func newSite(t *testing.T, worker, more string) *site {
	t.Helper()
	s := &site{Supervisord: lab.Prepare(t), address: lab.Reserve(t)}
	command, name := fmt.Sprintf("%q, \"worker\", %q", lab.Built.Self, worker), "web"
	if worker == "hello" {
		command, name = "{hello}", "http"
	}
	s.Write(lab.PIDFile + fmt.Sprintf(`
[program.web]
command = [%s]
workers = 2
stdout = "null"
stderr = "null"
listen = [{ name = %q, address = %q }]
ready = { method = "notify", timeout = "20s" }
`+briefDrain+"\n%s\n", command, name, s.address, more))
	return s
}

// edits replaces texts in the configuration, each followed by the new one, in which {address} stands for the address.
func (s *site) edits(texts ...string) {
	s.T.Helper()
	config := s.Read("config.toml")
	for ; len(texts) > 1; texts = texts[2:] {
		here := strings.NewReplacer("{address}", s.address)
		old, text := here.Replace(texts[0]), here.Replace(texts[1])
		if !strings.Contains(config, old) {
			s.T.Fatalf("%q is not in the configuration", old)
		}
		config = strings.Replace(config, old, text, 1)
	}
	s.File("config.toml", config)
}

// share lets all generations accept from one socket, and has the old one told to stop while it does.
func (s *site) share() {
	s.T.Helper()
	s.edits(" }]", `, handover = "share" }]`, briefDrain, noDrain)
}

// start runs supervisord until the test ends, and returns its PID.
func (s *site) start() int {
	s.T.Helper()
	s.Launch("-c", s.Path("config.toml"))
	s.Serves(1)
	return s.PID()
}

// outcome is the result of a run of `supervisord prove`.
type outcome struct {
	*prove.Findings // nil: it wrote no JSON
	code            int
	stdout, stderr  string
}

// prove runs `supervisord prove --json` for about a second and checks that no process is left.
func (s *site) prove(flags ...string) outcome {
	s.T.Helper()
	return s.wait(s.command(flags...))
}

// proving limits how many proofs run at once: more would stall each other.
var proving = make(chan struct{}, 3)

func (s *site) command(flags ...string) *exec.Cmd {
	args := append([]string{"prove", "-c", s.Path("config.toml"), "--json", "--reloads", "3", "--duration", "1200ms"},
		flags...)
	c := exec.Command(lab.Built.Supervisord, args...)
	c.Env = s.Environ()
	c.Stdout, c.Stderr = &strings.Builder{}, &announcement{begun: make(chan struct{})}
	return c
}

// announcement is what prove writes to stderr, first of all that the load begins.
type announcement struct {
	strings.Builder
	begun chan struct{}
}

func (a *announcement) Write(p []byte) (int, error) {
	if a.Len() == 0 {
		close(a.begun)
	}
	return a.Builder.Write(p)
}

// begin starts prove and waits until its load begins.
func (s *site) begin(c *exec.Cmd) {
	s.T.Helper()
	must.Do(s.T, c.Start())
	select {
	case <-c.Stderr.(*announcement).begun:
	case <-time.After(time.Minute):
		s.T.Fatal("the load does not begin")
	}
}

func (s *site) wait(c *exec.Cmd) outcome {
	s.T.Helper()
	proving <- struct{}{}
	defer func() { <-proving }()
	if c.Process == nil {
		must.Do(s.T, c.Start())
	}
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.T.Fatal(err)
	}
	o := outcome{code: c.ProcessState.ExitCode(), stdout: fmt.Sprint(c.Stdout), stderr: fmt.Sprint(c.Stderr)}
	v := &prove.Findings{}
	if json.Unmarshal([]byte(o.stdout), v) == nil {
		o.Findings = v
	}
	s.T.Logf("exit %d\n%s%s", o.code, o.stderr, o.short())
	if s.Cmd == nil { // else Finish looks
		for _, pid := range lab.Left(s.Processes) {
			s.T.Errorf("process %d is left behind", pid)
		}
	}
	return o
}

func (o outcome) short() string {
	if o.Findings == nil {
		return o.stdout
	}
	return fmt.Sprintf("%s %v %v\n%+v\n%+v\n%+v", o.Verdict, o.Reasons, o.Warnings, o.Requests, o.Workers, o.Descriptors)
}
