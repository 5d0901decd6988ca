package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/output"
)

// stage is a server with a fake supervisor made of these fields.
type stage struct {
	*testing.T
	*Site
	status   atomic.Pointer[supervisor.Status]
	states   atomic.Int64
	reloaded chan []string
	acted    chan program.Event
	failure  error
	log      atomic.Pointer[output.Log]
}

func open(t *testing.T, address, tokenFile string) *stage {
	t.Helper()
	return openWith(t, address, tokenFile, nil)
}

// showing is a server whose page shows what view returns.
func showing(t *testing.T, view func() *View, tokenFile string) *stage {
	t.Helper()
	return openWith(t, "127.0.0.1:0", tokenFile, view)
}

func openWith(t *testing.T, address, tokenFile string, view func() *View) *stage {
	t.Helper()
	s := &stage{T: t, reloaded: make(chan []string, 10), acted: make(chan program.Event, 10)}
	s.status.Store(&supervisor.Status{PID: 7, Programs: []supervisor.ProgramStatus{}})
	status := func(context.Context) (*supervisor.Status, error) {
		if st := s.status.Load(); st != nil {
			return st, nil
		}
		return nil, context.DeadlineExceeded
	}
	s.Site = &Site{
		Address: addr(address), TokenFile: tokenFile, Log: zap.NewNop(), Status: status,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "metric 1") }),
		View: func(ctx context.Context) (*View, error) {
			s.states.Add(1)
			if view != nil {
				return view(), nil
			}
			st, err := status(ctx)
			if err != nil {
				return nil, err
			}
			return &View{Status: st}, nil
		},
		Change: control.Buttons(reloading{stage: s}), Logs: func(context.Context, string) (*output.Log, error) {
			if log := s.log.Load(); log != nil {
				return log, nil
			}
			return nil, fmt.Errorf("%w: no output is captured", supervisor.ErrState)
		},
	}
	must.Do(t, s.Serve())
	t.Cleanup(s.Close)
	return s
}

// reloading is a loop with the part that the page needs.
type reloading struct {
	*stage
	*supervisor.Supervisor
}

func (s reloading) Reload(_ context.Context, reload supervisor.ReloadOptions) ([]supervisor.Ticket, error) {
	s.reloaded <- reload.Programs
	if reload.Reason != "the page" {
		s.Errorf("the reason is %q", reload.Reason)
	}
	return []supervisor.Ticket{{Program: "web", Generation: 3}}, s.failure
}

func (s reloading) Act(_ context.Context, name string, e program.Event) (supervisor.Ticket, error) {
	if s.failure == nil {
		s.acted <- e
	}
	return supervisor.Ticket{Program: name, Generation: 3}, s.failure
}

func (s reloading) Status(context.Context) (*supervisor.Status, error) { return s.status.Load(), nil }

func local(t *testing.T) *stage { t.Helper(); return open(t, "127.0.0.1:0", "") }

// do sends one request over a new connection; path is followed by the body, if there is one.
func (s *stage) do(method, path string, header ...string) (int, string, http.Header) {
	s.Helper()
	path, sent, _ := strings.Cut(path, " ")
	r := must.Get(http.NewRequest(method, "http://"+s.Addr().String()+path, strings.NewReader(sent)))(s.T)
	r.Close = true
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer := must.Get(http.DefaultTransport.RoundTrip(r))(s.T)
	defer answer.Body.Close()
	if who := answer.Header.Get("Access-Control-Allow-Origin"); who != "" {
		s.Errorf("%s %s: %s may read it", method, path, who)
	}
	body := must.Get(io.ReadAll(answer.Body))(s.T)
	return answer.StatusCode, string(body), answer.Header
}

func (s *stage) expect(method, path string, code int, says string, header ...string) {
	s.Helper()
	if got, body, _ := s.do(method, path, header...); got != code || !strings.Contains(body, says) {
		s.Errorf("%s %s %v: %d %q, want %d %q", method, path, header, got, body, code, says)
	}
}

// TestSite reads testdata/site.txt. A line that begins with # begins a story with a server of its own, which has a
// token; the others are steps:
//
//	METHOD PATH [BODY] [| HEADER: VALUE]… => CODE TEXT   a request, and the code and a part of the answer
//	holder METHOD …                 … of who has the token
//	type PATH TYPE                  the kind of file
//	status PROGRAM, stopping, hangs the supervisor has this program, of JSON; stops; or does not answer
//	fails ERROR                     it refuses
//	asked WHAT                      what it was asked for since
//	read-only, chmod MODE, lost     there is no token; its file
func TestSite(t *testing.T) {
	text := string(must.Get(os.ReadFile("testdata/site.txt"))(t))
	for story := range strings.SplitSeq("\n"+strings.TrimSpace(text), "\n# ") {
		title, steps, is := strings.Cut(story, "\n")
		if !is {
			continue
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := open(t, "127.0.0.1:0", tokenFile(t, token, 0o600))
			for line := range strings.Lines(steps) {
				if line = strings.TrimSpace(line); line != "" {
					s.siteStep(line)
				}
			}
			if len(s.acted)+len(s.reloaded) > 0 {
				t.Error("the supervisor was asked for more")
			}
		})
	}
}

var refusals = map[string]error{"no-program": supervisor.ErrNoProgram, "refused": supervisor.ErrRefused,
	"stopping": supervisor.ErrStopping, "state": supervisor.ErrState, "late": context.DeadlineExceeded}

func (s *stage) siteStep(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	path := s.TokenFile
	switch verb {
	case "type":
		of, want, _ := strings.Cut(rest, " ")
		if _, _, header := s.do("GET", of); header.Get("Content-Type") != want {
			s.Errorf("%s: it is %s", line, header.Get("Content-Type"))
		}
	case "status":
		p := supervisor.ProgramStatus{Name: "web"}
		must.Do(s.T, json.Unmarshal([]byte(rest), &p))
		s.status.Store(&supervisor.Status{Programs: []supervisor.ProgramStatus{p}})
	case "stopping":
		s.status.Store(&supervisor.Status{Stopping: true})
	case "hangs":
		s.status.Store(nil)
	case "fails":
		s.failure = fmt.Errorf("no: %w", refusals[rest])
	case "asked":
		select {
		case e := <-s.acted:
			if got := told(e); got != rest {
				s.Errorf("%s: it was %s", line, got)
			}
		case got := <-s.reloaded:
			if fmt.Sprint(got) != rest {
				s.Errorf("%s: it was %v", line, got)
			}
		}
	case "read-only":
		s.TokenFile = ""
	case "chmod":
		must.Do(s.T, os.Chmod(path, os.FileMode(must.Get(strconv.ParseUint(rest, 8, 12))(s.T))))
	case "lost":
		must.Do(s.T, os.Remove(path))
	default:
		s.siteRequest(line)
	}
}

// siteRequest sends the request of a line and compares the answer.
func (s *stage) siteRequest(line string) {
	request, answer, _ := strings.Cut(line, " =>")
	request, headers, _ := strings.Cut(request, " | ")
	var header []string
	if own, holder := strings.CutPrefix(request, "holder "); holder {
		request, header = own, bearer
	}
	for pair := range strings.SplitSeq(headers, " | ") {
		if name, value, is := strings.Cut(pair, ": "); is {
			header = append(header, name, strings.ReplaceAll(value, "TOKEN", token))
		}
	}
	method, path, _ := strings.Cut(request, " ")
	code, says, _ := strings.Cut(strings.TrimSpace(answer), " ")
	s.expect(method, path, must.Get(strconv.Atoi(code))(s.T), strings.ReplaceAll(says, "FILE", s.TokenFile), header...)
}

func TestHistoryGoesBeyondTheState(t *testing.T) {
	s := local(t)
	s.status.Store(&supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web",
		History: supervisor.History{Past: []*program.ReloadRecord{{Generation: 1, Outcome: program.Serves},
			{Generation: 2, Outcome: program.NotReady}},
			Reloads: []program.ReloadRecord{{Generation: 3, Outcome: program.Serves, AskedBy: "alice"},
				{Generation: 4, Outcome: program.Pending}}},
	}}})
	_, text, _ := s.do("GET", "/history?program=web")
	var list []program.ReloadRecord
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 3 || list[0].Generation != 3 ||
		list[0].AskedBy != "alice" || list[2].Generation != 1 {
		t.Errorf("%v: %s", err, text)
	}
	s.expect("GET", "/history?program=no", 404, "web")
	s.expect("GET", "/history", 404, "web")
}

func TestPageMayLoadNothingFromElsewhere(t *testing.T) {
	_, _, header := local(t).do("GET", "/")
	policy := header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") ||
		strings.Contains(policy, "http") || strings.Contains(policy, "*") {
		t.Errorf("the policy is %q", policy)
	}
	for name, want := range headers {
		if header.Get(name) != want {
			t.Errorf("%s is %q", name, header.Get(name))
		}
	}
	files, err := filepath.Glob("static/*")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		for _, bad := range []string{"https://", "http://", "innerHTML", "style=\"", "onclick=", "eval("} {
			if strings.Contains(strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""), bad) {
				t.Errorf("%s has %s", file, bad)
			}
		}
	}
}

func TestBeyondLoopbackOnlyNumbersAnswerToEveryName(t *testing.T) {
	own := must.Get(os.Hostname())(t)
	s := &Site{Address: addr("sv.example.org:9001"), Hosts: []string{"proxy.example.net"}}
	guarded := s.guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for code, all := range map[int][]string{
		421: {"evil.example/", "evil.example/state", "evil.example:9001/events", "evil.example/reload",
			"proxy.example.net.evil.example/state", "/state", "10.0.0.1.evil.example/state", "a:b:c/state"},
		200: {"evil.example/metrics", "evil.example/healthz", "evil.example/readyz", "192.0.2.7:9001/state",
			"[2001:db8::1]/state", "localhost/state", "sv:9001/state", "SV.example.org./state",
			"proxy.example.net:443/state", own + "/state"},
	} {
		for _, url := range all {
			host, path, _ := strings.Cut(url, "/")
			r, w := httptest.NewRequest("GET", "/"+path, nil), httptest.NewRecorder()
			r.Host = host
			if guarded.ServeHTTP(w, r); w.Code != code {
				t.Errorf("/%s as %q: %d, want %d", path, host, w.Code, code)
			}
		}
	}
}

const token = "0123456789abcdef0123"

// bearer is the header of who holds the token.
var bearer = []string{"Authorization", "Bearer " + token}

func tokenFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	must.Do(t, os.Chmod(path, mode))
	return path
}

func TestOnlyTheHolderOfTheTokenReadsOutput(t *testing.T) {
	s := open(t, "127.0.0.1:0", tokenFile(t, token, 0o600))
	s.expect("GET", "/logs?program=web", 409, "no output is captured", bearer...)
	s.log.Store(output.NewLog(nil, nil))
	s.expect("GET", "/logs?program=web", 200, "[]", bearer...)
	write := s.log.Load().Of(4)
	for i := range 2 * shownLines {
		write("stderr", 4711, fmt.Appendf(nil, "line %d\n", i))
	}
	s.expect("GET", "/logs?program=web", 401, "wrong token")
	_, text, _ := s.do("GET", "/logs?program=web", bearer...)
	var lines []output.LogLine
	if err := json.Unmarshal([]byte(text), &lines); err != nil || len(lines) != shownLines ||
		lines[shownLines-1].Text != fmt.Sprintf("line %d", 2*shownLines-1) || lines[0].PID != 4711 {
		t.Errorf("%v: %s", err, text)
	}
	s.TokenFile = ""
	s.expect("GET", "/logs?program=web", 403, "read-only")
}

func TestUnsafeTokenFilesAreRejected(t *testing.T) {
	for _, path := range []string{tokenFile(t, token, 0o604), tokenFile(t, token, 0o602), tokenFile(t, "short", 0o600),
		tokenFile(t, "", 0o600), "/dev/null", t.TempDir(), "/no/such/file"} {
		if got, err := readToken(path); err == nil {
			t.Errorf("%s is %q", path, got)
		}
	}
}

func TestTokenFileMayBeReadByItsGroup(t *testing.T) {
	for _, mode := range []os.FileMode{0o400, 0o600, 0o440, 0o640, 0o660} {
		if got, err := readToken(tokenFile(t, token, mode)); got != token {
			t.Errorf("mode %o: %q, %v", mode, got, err)
		}
	}
}

// follow opens a stream and returns its events.
func (s *stage) follow() (*bufio.Reader, net.Conn) {
	s.Helper()
	c := must.Get(net.Dial("tcp", s.Addr().String()))(s.T)
	s.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", s.Addr())
	return bufio.NewReader(c), c
}

func await(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no %q: %v", text, err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

func TestStreamSendsEveryChange(t *testing.T) {
	s := local(t)
	r, _ := s.follow()
	await(t, r, `"pid":7`)
	s.status.Store(&supervisor.Status{PID: 8})
	for range 100 {
		s.Notify()
	}
	await(t, r, `"pid":8`)
	if n := s.states.Load(); n > 4 {
		t.Errorf("the state was asked for %d times: a storm must come together", n)
	}
}

func TestClientThatDoesNotReadDelaysNoOther(t *testing.T) {
	s := local(t)
	big := &supervisor.Status{PID: 9, Programs: []supervisor.ProgramStatus{{Name: strings.Repeat("x", 8<<20)}}}
	_, stuck := s.follow()
	defer stuck.Close()
	s.status.Store(big)
	s.Notify()
	begin := time.Now()
	for range 1000 {
		s.Notify()
	}
	if d := time.Since(begin); d > time.Second {
		t.Errorf("it took %v to report the change", d)
	}
	s.status.Store(&supervisor.Status{PID: 10})
	s.expect("GET", "/healthz", 200, "ok")
}

func TestManyConnectionsDoNotKeepOutANewOne(t *testing.T) {
	for name, request := range map[string]string{
		"silent":  "",
		"idle":    "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"streams": "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := local(t)
			for range 2 * maxConns {
				c := must.Get(net.Dial("tcp", s.Addr().String()))(t)
				defer c.Close()
				io.WriteString(c, request)
				if request != "" {
					await(t, bufio.NewReader(c), "200 OK")
				}
			}
			s.expect("GET", "/healthz", 200, "ok")
		})
	}
}

func TestLongHeadersAreRefused(t *testing.T) {
	s := local(t)
	c := must.Get(net.Dial("tcp", s.Addr().String()))(t)
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "+strings.Repeat("x", 3*maxHeader))
	answer, err := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") && !errors.Is(err, syscall.ECONNRESET) {
		// the server need not read the whole request
		t.Errorf("%q, %v", answer, err)
	}
}

func TestSiteOnUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "http.sock")
	stale := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false)
	stale.Close()
	s := open(t, "unix:"+path, "")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	answer, err := client.Get("http://any.name/healthz")
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("%v %v", answer, err)
	}
	answer.Body.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", info, err)
	}
	if err := (&Site{Address: addr("unix:" + path)}).Serve(); err == nil ||
		!strings.Contains(err.Error(), "answers there") {
		t.Errorf("a second one: %v", err)
	}
	s.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is left")
	}
	file := tokenFile(t, "precious", 0o600)
	if err := (&Site{Address: addr("unix:" + file)}).Serve(); err == nil ||
		!strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("on a file: %v", err)
	}
}

func addr(s string) socket.Address { return must.Be(socket.ParseAddress(s)) }
