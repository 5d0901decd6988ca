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
	"path/filepath"
	"strconv"
	"strings"
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
	"exit": func() {
		_, term := serveHTTP(http.HandlerFunc(hi))
		<-term
		os.Exit(0)
	},
	"busy": func() { // answers 503 from TERM on
		leaving := make(chan struct{})
		_, term := serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-leaving:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				hi(w, r)
			}
		}))
		<-term
		close(leaving)
		time.Sleep(200 * time.Millisecond)
		os.Exit(0)
	},
	"early": func() { // reports readiness 700 ms too early, except in the first generation, which prove needs
		began := time.Now()
		s, term := serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if os.Getenv("SUPERVISORD_GENERATION") != "1" && time.Since(began) < 700*time.Millisecond {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			hi(w, r)
		}))
		<-term
		s.Shutdown(context.Background())
	},
	"own": func() { // opens a port of its own, and closes it before the next worker opens it
		ln := worked(net.Listen("tcp", os.Getenv("OWN_ADDRESS")))
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
	"stubborn": func() { // lives until it is killed
		serveHTTP(http.HandlerFunc(hi))
		select {}
	},
	"tcp": func() {
		ln := worked(graceful.Listener("web", ""))
		graceful.Serve(context.Background(), graceful.Conns(ln, func(_ context.Context, c net.Conn) {
			io.WriteString(c, "welcome\n")
			io.Copy(io.Discard, c)
		}))
	},
}

func hi(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hi") }

func serveHTTP(h http.Handler) (*http.Server, <-chan os.Signal) {
	ln := worked(graceful.Listener("web", ""))
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	s := &http.Server{Handler: h}
	go s.Serve(ln)
	if err := graceful.Ready(); err != nil {
		panic(err)
	}
	return s, term
}

func worked[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// site is a configuration in a private directory.
type site struct {
	t       *testing.T
	file    string
	address string
	runs    bool // start was called
}

// briefDrain is in every configuration: workers that lose requests do so soon.
const briefDrain = `drain.timeout = "1s"`

// briefStop has workers killed soon.
const briefStop = `stop = { timeout = "200ms" }`

// newSite writes a configuration for two workers; more is appended under [program.web].
func newSite(t *testing.T, worker, more string) *site {
	t.Helper()
	dir := t.TempDir()
	command := fmt.Sprintf("[%q, \"worker\", %q]", worked(os.Executable()), worker)
	if worker == "hello" {
		command = fmt.Sprintf("[%q]", lab.Built.Hello)
	}
	s := &site{t: t, file: filepath.Join(dir, "config.toml"), address: lab.Reserve(t)}
	name := "web"
	if worker == "hello" {
		name = "http"
	}
	s.write(fmt.Sprintf(`
[supervisor]
pid_file = %q
runtime_dir = %q
[program.web]
environment = { PROVE_SITE = %q }
command = %s
workers = 2
stdout = "null"
stderr = "null"
listen = [{ name = %q, address = %q }]
ready = { method = "notify", timeout = "20s" }
`+briefDrain+`
%s`, filepath.Join(dir, "pid"), dir, s.file, command, name, s.address, more))
	return s
}

func (s *site) write(text string) {
	s.t.Helper()
	must.Do(s.t, os.WriteFile(s.file, []byte(text), 0o644))
}

// edit replaces a text in the configuration.
func (s *site) edit(old, new string) {
	s.t.Helper()
	text := string(must.Get(os.ReadFile(s.file))(s.t))
	if !strings.Contains(text, old) {
		s.t.Fatalf("%q is not in the configuration", old)
	}
	s.write(strings.Replace(text, old, new, 1))
}

// edits replaces texts, each followed by the new one, in which {address} stands for the address.
func (s *site) edits(texts ...string) {
	s.t.Helper()
	for ; len(texts) > 1; texts = texts[2:] {
		s.edit(strings.ReplaceAll(texts[0], "{address}", s.address), strings.ReplaceAll(texts[1], "{address}", s.address))
	}
}

// share lets all generations accept from one socket.
func (s *site) share() {
	s.t.Helper()
	s.edit(" }]", `, handover = "share" }]`)
	s.edit(briefDrain, "")
}

// start runs supervisord until the test ends, and returns its PID.
func (s *site) start() int {
	s.t.Helper()
	s.runs = true
	c := exec.Command(lab.Built.Supervisord, "run", "-c", s.file)
	must.Do(s.t, c.Start())
	s.t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			s.t.Errorf("supervisord: %v", err)
		}
	})
	s.answers("")
	return c.Process.Pid
}

// answers waits until the program answers with these words.
func (s *site) answers(words string) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		// no event when another process answers
		if r, err := client.Get("http://" + s.address + "/"); err == nil {
			text, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err == nil && strings.Contains(string(text), words) {
				return
			}
		}
	}
	s.t.Fatalf("the program does not answer %q", words)
}

// outcome is the result of a run of `supervisord prove`.
type outcome struct {
	*prove.Findings // nil: it wrote no JSON
	code            int
	stdout, stderr  string
}

// prove runs `supervisord prove --json` for about a second and checks that no process is left.
func (s *site) prove(flags ...string) outcome {
	s.t.Helper()
	c := s.command(flags...)
	return s.wait(c)
}

// proving limits how many proofs run at once: more would stall each other.
var proving = make(chan struct{}, 3)

func (s *site) command(flags ...string) *exec.Cmd {
	args := append([]string{"prove", "-c", s.file, "--json", "--reloads", "3", "--duration", "1200ms"}, flags...)
	c := exec.Command(lab.Built.Supervisord, args...)
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
	s.t.Helper()
	must.Do(s.t, c.Start())
	select {
	case <-c.Stderr.(*announcement).begun:
	case <-time.After(time.Minute):
		s.t.Fatal("the load does not begin")
	}
}

func (s *site) wait(c *exec.Cmd) outcome {
	s.t.Helper()
	proving <- struct{}{}
	defer func() { <-proving }()
	if c.Process == nil {
		must.Do(s.t, c.Start())
	}
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	o := outcome{code: c.ProcessState.ExitCode(), stdout: fmt.Sprint(c.Stdout), stderr: fmt.Sprint(c.Stderr)}
	v := &prove.Findings{}
	if json.Unmarshal([]byte(o.stdout), v) == nil {
		o.Findings = v
	}
	s.t.Logf("exit %d\n%s%s", o.code, o.stderr, o.short())
	if !s.runs {
		s.nobodyLeft()
	}
	return o
}

func (o outcome) short() string {
	if o.Findings == nil {
		return o.stdout
	}
	return fmt.Sprintf("%s %v %v\n%+v\n%+v\n%+v", o.Verdict, o.Reasons, o.Warnings, o.Requests, o.Workers, o.Descriptors)
}

// nobodyLeft fails if a worker of this site or one of its descendants is alive.
func (s *site) nobodyLeft() {
	s.t.Helper()
	for _, pid := range s.alive() {
		s.t.Errorf("process %d is left behind", pid)
	}
}

// alive returns the running workers of this site and their descendants.
func (s *site) alive() []int {
	var pids []int
	for _, file := range worked(filepath.Glob("/proc/[0-9]*/environ")) {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "PROVE_SITE="+s.file+"\x00") {
			pids = append(pids, worked(strconv.Atoi(filepath.Base(filepath.Dir(file)))))
		}
	}
	return pids
}
