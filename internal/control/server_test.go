package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket/unixpath"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

const nobody = 65534

func TestSocketHasConfiguredModeAndGroup(t *testing.T) {
	gid := fmt.Sprint(os.Getgid())
	s := serve(t, newFake(), func(o *API) { o.Mode, o.Group = 0o640, gid })
	info, err := os.Lstat(s.Path)
	if err != nil || info.Mode().Perm() != 0o640 || info.Sys().(*syscall.Stat_t).Gid != uint32(os.Getgid()) {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestUnknownGroupIsAnError(t *testing.T) {
	if err := (&API{Path: filepath.Join(t.TempDir(), "s"), Group: "no-such-group", Inherited: -1}).Serve(); err == nil {
		t.Error("it serves")
	}
}

func TestNextImageTakesOverListener(t *testing.T) {
	f := newFake()
	path := filepath.Join(t.TempDir(), "s")
	old := must.Get(unixpath.OpenOwn(path, 0o600, -1))(t)
	waiting, err := net.Dial("unix", path) // connects while the server does not accept
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	s := serve(t, f, func(o *API) { o.Path, o.Inherited, o.Mode = path, old.FD(), 0o606 })
	if s.FD() != old.FD() {
		t.Error("it listens on another socket")
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o606 {
		t.Errorf("the newly configured mode does not apply: %v", err)
	}
	if flags, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Error("workers would inherit it")
	}
	if code, _ := talk(t, waiting, "GET", "/v1/status", ""); code != 200 {
		t.Errorf("a client that waited meanwhile gets %d", code)
	}
}

func TestNextImageMovesSocketToConfiguredPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old := must.Get(unixpath.OpenOwn(path, 0o600, -1))(t)
	s := serve(t, newFake(), func(o *API) { o.Inherited = old.FD() })
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old one is left: %v", err)
	}
	if code, _ := talk(t, dial(t, s), "GET", "/v1/status", ""); code != 200 {
		t.Errorf("the new one answers %d", code)
	}
}

func TestPermissions(t *testing.T) {
	const group, other = 54321, 54322
	for _, c := range []struct {
		name     string
		group    string
		read     bool
		uid, gid int
		groups   []uint32
		reads    int
		changes  int
	}{
		{"root", "", false, 0, 0, nil, 200, 200},
		{"any user", "", false, nobody, nobody, nil, 403, 403},
		{"any user where all may read", "", true, nobody, nobody, nil, 200, 403},
		{"the group", fmt.Sprint(group), false, nobody, group, nil, 200, 200},
		{"the group, as a supplementary one", fmt.Sprint(group), false, nobody, nobody, []uint32{1, 2, group}, 200, 200},
		{"another group", fmt.Sprint(group), false, nobody, other, []uint32{1, 2, 3}, 403, 403},
		{"root's group", "", false, nobody, 0, []uint32{0}, 403, 403},
		{"with more groups than are usual", fmt.Sprint(group), false, nobody, nobody, append(many(300), group), 200, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake()
			s := serve(t, f, func(o *API) { o.Group, o.Read, o.Mode = c.group, c.read, 0o666 })
			if code, text := talk(t, dialAs(t, s, c.uid, c.gid, c.groups...), "GET", "/v1/status", ""); code != c.reads {
				t.Errorf("reading is answered %d %s, want %d", code, text, c.reads)
			}
			if code, text := talk(t, dialAs(t, s, c.uid, c.gid, c.groups...), "POST", "/v1/programs/web/stop",
				""); code != c.changes {
				t.Errorf("changing is answered %d %s, want %d", code, text, c.changes)
			}
			if changed := f.last() != nil; changed != (c.changes == 200) {
				t.Errorf("something was changed: %v", changed)
			}
		})
	}
}

func many(n int) []uint32 {
	var list []uint32
	for i := range n {
		list = append(list, uint32(10000+i))
	}
	return list
}

func TestEveryChangeNeedsPermission(t *testing.T) {
	f := newFake()
	s := serve(t, f, func(o *API) { o.Read = true })
	for _, r := range routes {
		if r.change != (r.method != "GET") {
			t.Errorf("%s %s: change is %v", r.method, r.path, r.change)
		}
		if r.change {
			refuses(t, dialAs(t, s, nobody, nobody), 403, r.method, strings.ReplaceAll(r.path, "{name}", "web"), "{}")
		}
	}
	if f.last() != nil {
		t.Errorf("the loop was asked for %+v", f.last())
	}
}

// myself is the recorded requester if this process asks.
func myself(t *testing.T) string {
	t.Helper()
	u := must.Get(user.Current())(t)
	who := fmt.Sprintf("%s (uid %s, pid %d", u.Username, u.Uid, os.Getpid())
	if text, err := os.ReadFile("/proc/self/loginuid"); err == nil && string(text) != fmt.Sprint(uint32(noLogin)) &&
		string(text) != u.Uid {
		login, err := user.LookupId(string(text))
		if err != nil {
			t.Skip("the login user has no name: ", err)
		}
		who += ", login " + login.Username
	}
	return who + ")"
}

func TestReasonCannotForgeWhoAsked(t *testing.T) {
	f := newFake()
	s := serve(t, f, func(o *API) { o.Group = fmt.Sprint(nobody) })
	talk(t, dialAs(t, s, 1<<20, nobody), "POST", "/v1/reload", `{"reason":"for \u001b[31mroot\u0000"}`)
	q, ok := f.last().(supervisor.ReloadOptions)
	if want := fmt.Sprintf("uid %d (pid %d", 1<<20, os.Getpid()); !ok || !strings.HasPrefix(q.AskedBy, want) ||
		q.Reason != "for ?[31mroot?" {
		t.Errorf("the loop was asked for %+v, want it to say %s", f.last(), want)
	}
}

func TestNameOfUserIsMadePrintableAndCannotPassForTheRest(t *testing.T) {
	f := newFake()
	s := serve(t, f, func(o *API) {
		o.Group = fmt.Sprint(nobody)
		o.users.look = func(uid uint32) string {
			return fmt.Sprintf("mallory%d (uid 0, pid 1)\x1b\n%s", uid, strings.Repeat("x", 100))
		}
	})
	talk(t, dialAs(t, s, 1<<20, nobody), "POST", "/v1/reload", "")
	talk(t, dialAs(t, s, 1<<20+1, nobody), "POST", "/v1/programs/web/stop", "")
	for i, by := range []string{f.asked[0].(supervisor.ReloadOptions).AskedBy,
		f.asked[1].(acted).Event.(program.Stop).AskedBy} {
		uid := 1<<20 + i
		if begin := fmt.Sprintf("mallory%d ?uid 0? pid 1???x", uid); !strings.HasPrefix(by, begin) ||
			!strings.Contains(by, fmt.Sprintf("x (uid %d, pid %d", uid, os.Getpid())) ||
			strings.Count(by, "x") > maxWho {
			t.Errorf("user %d is %q", uid, by)
		}
	}
}

func TestUserDatabaseThatHangsHoldsUpOneRequestForASecond(t *testing.T) {
	f := newFake()
	hangs := make(chan struct{})
	s := serve(t, f, func(o *API) {
		o.users.look = func(uint32) string { <-hangs; return "late" }
	})
	defer close(hangs)
	before := time.Now()
	for range 20 {
		if status, _ := talk(t, dial(t, s), "POST", "/v1/reload", ""); status != 200 {
			t.Fatalf("status %d", status)
		}
	}
	if took := time.Since(before); took < nameTimeout || took > 4*nameTimeout {
		t.Errorf("20 requests took %s", took)
	}
	if by, want := f.last().(supervisor.ReloadOptions).AskedBy, fmt.Sprintf("uid %d (pid %d", os.Getuid(),
		os.Getpid()); !strings.HasPrefix(by, want) {
		t.Errorf("%q asked, want %q", by, want)
	}
}

// TestRequests reads testdata/requests.txt, a request in a line, and what it is answered and the loop is asked for.
// With -rewrite it writes that. <TEXT*N> is a text N times.
func TestRequests(t *testing.T) {
	me := strings.NewReplacer(myself(t), "ME")
	f := newFake()
	s := serve(t, f)
	many := regexp.MustCompile(`<(.*)\*(\d+)>`)
	datadriven.RunTest(t, "testdata/requests.txt", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			line = many.ReplaceAllStringFunc(strings.TrimSuffix(line, "\n"), func(text string) string {
				m := many.FindStringSubmatch(text)
				return strings.Repeat(m[1], must.Be(strconv.Atoi(m[2])))
			})
			fields := append(strings.SplitN(line, " ", 3), "")
			f.asked = nil
			if d.Cmd == "refused" {
				code, text := talk(t, dial(t, s), fields[0], fields[1], fields[2])
				var p APIError
				must.Do(t, json.Unmarshal([]byte(text), &p))
				why, _, _ := strings.Cut(p.Error(), "json: ") // what Go says may change
				fmt.Fprintf(&b, "%d %s: %s\n", code, p.Code, why)
			} else if code, text := talk(t, dial(t, s), fields[0], fields[1], fields[2]); code != 200 {
				t.Errorf("%s: %d %s", line, code, text)
			} else if a, is := f.last().(acted); is {
				fmt.Fprintln(&b, me.Replace(fmt.Sprintf("%s: %T%+[2]v", a.Program, a.Event)))
			} else {
				fmt.Fprintln(&b, me.Replace(fmt.Sprintf("%T%+[1]v", f.last())))
			}
			if d.Cmd == "refused" && f.last() != nil {
				t.Errorf("%.80s: the loop was asked for %+v", line, f.last())
			}
		}
		return b.String()
	})
}

func TestErrorsOfTheLoopHaveTheirCodes(t *testing.T) {
	for err, want := range map[error]struct {
		status int
		code   Code
	}{
		supervisor.ErrNoProgram: {404, NoProgram}, supervisor.ErrRefused: {422, Refused}, supervisor.ErrState: {409,
			NotNow}, supervisor.ErrUpgrade: {422, BadBinary},
		supervisor.ErrStopping: {503, Stopping}, errSlow: {504, TooSlow}, errors.New("?"): {500, Internal},
	} {
		f := newFake()
		f.err = fmt.Errorf("more: %w", err)
		s := serve(t, f)
		for _, wait := range []string{"", "?until=serves"} {
			if p := refuses(t, dial(t, s), want.status, "POST", "/v1/reload"+wait, ""); p.Code != want.code {
				t.Errorf("%v: the code is %s, want %s", err, p.Code, want.code)
			}
		}
	}
}

func TestReloadWithWaitSubscribesBeforeItAsks(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	c := dial(t, s)
	fmt.Fprint(c, "POST /v1/reload?until=drained HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	<-f.followed
	f.publish(program.Report{Kind: program.GenerationServes, Generation: 2,
		Reload: &program.ReloadRecord{Generation: 2, Replaced: 1, Outcome: program.Serves}},
		program.Report{Kind: program.GenerationGone, Generation: 1,
			Reload: &program.ReloadRecord{Generation: 2, Replaced: 1, Outcome: program.Serves,
				Instants: program.Instants{Ended: time.Now()}, Killed: 2}})
	_, text := answer(t, c)
	v := verdictIn(t, text)
	if v.Outcome != Killed || v.Programs[0].Reload.Killed != 2 || v.Programs[0].Reload.Replaced != 1 ||
		v.Programs[0].Reload.Ended.IsZero() {
		t.Errorf("the verdict is %+v", v)
	}
}

// verdictIn returns the verdict in the last line of a chunked stream.
func verdictIn(t *testing.T, text string) *Verdict {
	t.Helper()
	for line := range strings.Lines(text) {
		var l WaitLine
		if json.Unmarshal([]byte(line), &l) == nil && l.Verdict != nil {
			return l.Verdict
		}
	}
	t.Fatalf("there is no verdict in %s", text)
	return nil
}

func TestSlowWaitContinuesFromTheStatus(t *testing.T) {
	f := newFake()
	f.buffer = 0 // the first update is one too many
	f.status.Programs[0].Reloads = []program.ReloadRecord{{Generation: 2, Outcome: program.Pending}}
	s := serve(t, f)
	c := dial(t, s)
	fmt.Fprint(c, "GET /v1/wait?ticket=web:2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	<-f.followed
	f.mu.Lock()
	f.status.Programs = []supervisor.ProgramStatus{{Name: "web",
		History: supervisor.History{Reloads: []program.ReloadRecord{{Generation: 2, Outcome: program.Serves}}}}}
	for key, ch := range f.followers {
		close(ch)
		delete(f.followers, key)
	}
	f.mu.Unlock()
	if _, text := answer(t, c); verdictIn(t, text).Outcome != program.Serves {
		t.Errorf("it says %s", text)
	}
}

// TestWaitForAnotherInstanceHearsNothingOfThisOne: what the generation with the same number does is not its outcome.
func TestWaitForAnotherInstanceHearsNothingOfThisOne(t *testing.T) {
	f := newFake()
	f.status.Instance = "here"
	f.sooner = []*supervisor.Update{{Program: "web", Report: program.Report{Kind: program.GenerationServes, Generation: 2,
		Reload: &program.ReloadRecord{Generation: 2, Replaced: 1, Outcome: program.Serves}}}}
	c := dial(t, serve(t, f))
	fmt.Fprint(c, "GET /v1/wait?ticket=web:2:there HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	_, text := answer(t, c)
	if v := verdictIn(t, text); v.Outcome != Unknown {
		t.Errorf("the verdict is %+v", v)
	}
	told, update := strings.Index(text, `"program":{`), strings.Index(text, `"update":{`)
	if update >= 0 && told > update {
		t.Errorf("the client hears of the other generation first: %s", text)
	}
}

func TestStreamEndsWhenItsClientLeaves(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	for _, leave := range []func(net.Conn){
		func(c net.Conn) { c.Close() },
		func(c net.Conn) { c.(*net.UnixConn).CloseWrite() }, // half-closed counts as gone
	} {
		c := dial(t, s)
		fmt.Fprint(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
		<-f.followed
		leave(c)
		must.Become(t, "no subscriber is left", func() bool { return f.following() == 0 })
	}
}

func TestEventsOfOneProgramHaveNoOthers(t *testing.T) {
	f := newFake()
	f.status.Programs = append(f.status.Programs, supervisor.ProgramStatus{Name: "other"})
	s := serve(t, f)
	c := dial(t, s)
	fmt.Fprint(c, "GET /v1/events?program=other HTTP/1.1\r\nHost: x\r\n\r\n")
	<-f.followed
	f.publish(program.Report{Kind: program.WorkerDied})
	f.mu.Lock()
	for _, ch := range f.followers {
		ch <- &supervisor.Update{Program: "other", Report: program.Report{Kind: program.WorkerReady}}
	}
	f.mu.Unlock()
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil || strings.Contains(line, `"web"`) {
			t.Fatalf("%q %v", line, err)
		}
		if strings.Contains(line, string(program.WorkerReady)) {
			return
		}
	}
}

func TestOneUserCannotKeepOthersOut(t *testing.T) {
	s := serve(t, newFake(), func(o *API) { o.Read = true })
	follower := dial(t, s)
	fmt.Fprint(follower, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	if line, err := bufio.NewReader(follower).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
		t.Fatalf("root cannot follow: %q %v", line, err)
	}
	for range 2 * maxConns {
		dialAs(t, s, nobody, nobody)
	}
	for name, c := range map[string]net.Conn{"root": dial(t, s), "another user": dialAs(t, s, nobody-1, nobody),
		"the user itself": dialAs(t, s, nobody, nobody)} {
		if code, _ := talk(t, c, "GET", "/v1/status", ""); code != 200 {
			t.Errorf("%s is answered %d", name, code)
		}
	}
	follower.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := io.Copy(io.Discard, follower); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("root no longer follows: %v", err)
	}
}

func TestReadersGetNoConnectionOfAnOperator(t *testing.T) {
	f := newFake()
	f.followed = make(chan struct{}, 2*maxConns)
	s := serve(t, f, func(o *API) { o.Read = true })
	for range maxConns {
		fmt.Fprint(dial(t, s), "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	must.Become(t, "all follow", func() bool { return f.following() == maxConns })
	if code, text := talk(t, dialAs(t, s, nobody, nobody), "GET", "/v1/status", ""); code != 503 ||
		!strings.Contains(text, string(TooMany)) {
		t.Errorf("a reader is answered %d %s", code, text)
	}
	if code, _ := talk(t, dial(t, s), "GET", "/v1/status", ""); code != 200 {
		t.Errorf("root is answered %d", code)
	}
	must.Become(t, "only the oldest of root's followers has lost its place",
		func() bool { return f.following() == maxConns-1 })
}

// lingering sends an unfinished request, and with it the last descriptor of a TCP socket whose close takes an hour, or
// until the returned socket is closed.
func lingering(t *testing.T, c net.Conn) io.Closer {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	tcp := must.Get(net.Dial("tcp", l.Addr().String()))(t)
	deaf := must.Get(l.Accept())(t)
	tcp.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	var err error
	for junk := make([]byte, 1<<16); err == nil; {
		_, err = tcp.Write(junk)
	}
	last, to := duplicate(t, tcp), duplicate(t, c)
	tcp.Close()
	unix.SetsockoptLinger(last, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600})
	foreign.Apart(func() { // the server may close its copy first, so that the one here is the last
		err = unix.Sendmsg(to, []byte("GET /v1/status HTTP/1.1\r\n"), unix.UnixRights(last), nil, 0)
		unix.Close(last)
	})
	unix.Close(to)
	if err != nil {
		t.Error(err)
	}
	return deaf
}

func duplicate(t *testing.T, c net.Conn) (fd int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		raw.Control(func(f uintptr) { fd, err = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestLingeringDescriptorsDelayNoClientOnOldKernels lets the kernel pass descriptors, as it does before Linux 6.16.
func TestLingeringDescriptorsDelayNoClientOnOldKernels(t *testing.T) {
	var ends time.Time
	var deaf []io.Closer
	t.Cleanup(func() { // runs before the cleanup of serve, which closes the server
		if took := time.Since(ends); took > closeTimeout+leaveTimeout/2 {
			t.Errorf("the server ended after %v", took)
		}
		for _, d := range deaf {
			d.Close()
		}
	})
	s := serve(t, newFake())
	unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1) // ENOPROTOOPT: an old kernel
	for range 8 {
		deaf = append(deaf, lingering(t, dial(t, s)))
	}
	if code, _ := talk(t, dial(t, s), "GET", "/v1/status", ""); code != 200 {
		t.Errorf("others are answered %d", code)
	}
	ends = time.Now()
}

func TestDescriptorsAreRefused(t *testing.T) {
	s := serve(t, newFake())
	if _, err := unix.GetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_PASSRIGHTS); err != nil {
		t.Skip("this kernel cannot refuse descriptors: ", err)
	}
	_, _, err := dial(t, s).(*net.UnixConn).WriteMsgUnix([]byte("GET"), unix.UnixRights(0), nil)
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("sending one: %v, want EPERM", err)
	}
}

func TestEndlessRequestIsCutOff(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake())
	c := dial(t, s)
	fmt.Fprint(c, "GET /v1/status HTTP/1.1\r\nHost: x\r\nX: ")
	began := time.Now()
	c.SetReadDeadline(began.Add(headerTimeout + 10*time.Second))
	if _, err := bufio.NewReader(c).ReadString('\x00'); err == nil || time.Since(began) > headerTimeout+8*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	s := serve(t, newFake())
	c := dial(t, s)
	go fmt.Fprintf(c, "GET /v1/status HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.Contains(line, " 431 ") {
		t.Errorf("it says %q", line)
	}
}

func FuzzRequests(f *testing.F) {
	for _, r := range routes {
		f.Add(r.method, strings.ReplaceAll(r.path, "{name}", "web"),
			`{"workers":1,"signal":"HUP","generation":1,"level":"info"}`)
	}
	f.Add("GET", "/v1/wait?ticket=web:7:6&until=drained&timeout=1ms", "")
	f.Add("POST", "/v1/reload?until=serves&timeout=1ms", "")
	fk := newFake()
	fk.followed = make(chan struct{}, 1<<20)
	s := serve(f, fk)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.ContainsAny(method+path, " \r\n\x00") || method == "" || strings.HasPrefix(path, "/v1/events") {
			return
		}
		c := dial(t, s)
		defer c.Close()
		fmt.Fprintf(c, "%s /%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method,
			strings.TrimPrefix(path, "/"), len(body), body)
		if strings.HasPrefix(path, "/v1/wait") || strings.Contains(path, "until") {
			return // may be slow
		}
		if code, text := answer(t, c); code == 0 || code == 500 {
			t.Errorf("%d %s", code, text)
		}
	})
}

func TestClientThatMeansAnotherConfigurationIsRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o755),
		os.WriteFile(filepath.Join(dir, "real/c.toml"), nil, 0o644), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	s := serve(t, newFake(), func(o *API) { o.Config = filepath.Join(link, "c.toml") })
	for means, want := range map[string]int{
		filepath.Join(link, "c.toml"): 200, filepath.Join(dir, "real/c.toml"): 200, filepath.Join(dir,
			"c.toml"): 421, "c.toml": 421, "%zz": 421,
	} {
		c := dial(t, s)
		fmt.Fprintf(c, "GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s: /other\r\n%s: %s\r\n\r\n",
			configHeader, configHeader, strings.ReplaceAll(means, "/", "%2F"))
		if code, text := answer(t, c); code != want || want == 421 && !strings.Contains(text, `"other_config"`) {
			t.Errorf("%s: %d %s, want %d", means, code, text, want)
		}
	}
}

func TestRemedyForSeveralErrorsHasItsOwnLine(t *testing.T) {
	for want, p := range map[string]*APIError{
		"refused: x: fix it":        {What: "refused: x", Remedy: "fix it"},
		"refused: x\ny: z?\nfix it": {What: "refused: x\ny: z?", Remedy: "fix it"},
		"refused":                   {What: "refused"},
	} {
		if p.Error() != want {
			t.Errorf("%q instead of %q", p.Error(), want)
		}
	}
}
