package worker

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestDelayIsTimeAlive(t *testing.T) {
	l := launcher(t)
	s := start(t, l, Spec{Command: []string{"sleep", "100"}, Ready: Ready{Method: Delay, Delay: 50 * time.Millisecond}})
	must[Spawned](s)
	begin := time.Now()
	must[ReadySaid](s)
	if d := time.Since(begin); d < 40*time.Millisecond {
		t.Errorf("ready after %v", d)
	}
	s = start(t, l, Spec{Command: []string{"sleep", "0.01"}, Ready: Ready{Method: Delay, Delay: time.Hour}})
	must[Spawned](s)
	must[Exited](s)
}

// afterThree answers badly three times.
func afterThree(asked *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/health":
			w.WriteHeader(http.StatusNotFound)
		case asked.Add(1) <= 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound) // must not be followed
		}
	})
}

func TestProbesSucceedWhenTheWorkerAnswers(t *testing.T) {
	l := launcher(t)
	var asked atomic.Int64
	server := httptest.NewServer(afterThree(&asked))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	onSocket := httptest.NewUnstartedServer(afterThree(&asked))
	onSocket.Listener.Close()
	onSocket.Listener = listener
	onSocket.Start()
	defer onSocket.Close()
	const every = 5 * time.Millisecond
	for _, r := range []Ready{
		{Method: HTTP, URL: server.URL + "/health", Interval: every},
		{Method: HTTP, URL: "unix:" + path + ":/health", Interval: every},
		{Method: TCP, Address: strings.TrimPrefix(server.URL, "http://"), Interval: every},
		{Method: TCP, Address: "unix:" + path, Interval: every},
		{Method: Exec, Command: []string{"sh", "-c", "kill -0 {pid}"}, Interval: every},
	} {
		t.Run(string(r.Method), func(t *testing.T) {
			asked.Store(0)
			s := start(t, l, Spec{Command: []string{"sleep", "100"}, Ready: r})
			must[Spawned](s)
			must[ReadySaid](s)
			if r.Method == HTTP && asked.Load() != 4 {
				t.Errorf("asked %d times", asked.Load())
			}
		})
	}
}

func TestProbeEndsWithTheWorker(t *testing.T) {
	l := launcher(t)
	stuck, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	for _, r := range []Ready{
		{Method: HTTP, URL: "http://" + stuck.Addr().String()},
		{Method: TCP, Address: "127.0.0.1:1"},
		{Method: Exec, Command: []string{"sleep", "100"}},
	} {
		s := start(t, l, Spec{Command: []string{"sleep", "100"}, Ready: r})
		must[Spawned](s)
		begin := time.Now()
		s.signal(int(syscall.SIGTERM))
		must[Exited](s)
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("%s: the end took %v", r.Method, d)
		}
	}
}

func TestTargetOfAProbe(t *testing.T) {
	for _, r := range []Ready{
		{Method: HTTP, URL: "localhost:80"}, {Method: HTTP, URL: "unix:"}, {Method: HTTP, URL: "unix:a.sock"}, {Method: HTTP, URL: "http://%zz"},
		{Method: HTTP, URL: "http://:80/"}, {Method: TCP, Address: "localhost"}, {Method: TCP, Address: "unix:"}, {Method: TCP, Address: "unix:@"},
		{Method: TCP, Address: "unix:/" + strings.Repeat("x", maxSocketPath)},
	} {
		if network, address, err := r.Target(); err == nil {
			t.Errorf("%+v goes to %s %s", r, network, address)
		}
	}
	for want, r := range map[string]Ready{
		" ":               {Method: Notify, URL: "http://localhost/"},
		"tcp [::1]:1":     {Method: HTTP, URL: "https://[::1]:1/x"},
		"tcp a:80":        {Method: HTTP, URL: "http://a/x"},
		"tcp [::1]:443":   {Method: HTTP, URL: "https://[::1]"},
		"unix /a.sock":    {Method: HTTP, URL: "unix:/a.sock:/x"},
		"unix @a":         {Method: HTTP, URL: "unix:@a"},
		"tcp [::1]:80":    {Method: TCP, Address: "[::1]:80"},
		"unix /a/b:c":     {Method: TCP, Address: "unix:/a/b:c"},
		"tcp 127.0.0.1:1": {Method: TCP, Address: "127.0.0.1:1"},
	} {
		network, address, err := r.Target()
		if got := network + " " + address; got != want || err != nil {
			t.Errorf("%+v goes to %q, %v", r, got, err)
		}
	}
}

func TestUnixURL(t *testing.T) {
	for in, want := range map[string]string{
		"unix:/a/b.sock":          "/a/b.sock http://localhost/",
		"unix:/a/b.sock:/":        "/a/b.sock http://localhost/",
		"unix:/a/b:c.sock:/h?x=1": "/a/b:c.sock http://localhost/h?x=1",
	} {
		socket, target, err := splitURL(in)
		if got := fmt.Sprintf("%s %s", socket, target); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}

func TestNotifyFDHasTheNumberThatIsAskedFor(t *testing.T) {
	l := launcher(t)
	fd, _ := listeningSocket(t)
	for _, c := range []struct {
		asked  int
		places []int
	}{{9, nil}, {4, nil}, {3, []int{0}}, {5, []int{7}}} {
		t.Run(fmt.Sprint(c.asked, c.places), func(t *testing.T) {
			spec := shell(fmt.Sprintf("test $NOTIFY_FD = %d && echo >&%d; exec sleep 100", c.asked, c.asked))
			spec.Environment = []string{"PATH=/bin:/usr/bin"}
			spec.Sockets, spec.Places, spec.Ready.FD = []int{fd}, c.places, c.asked
			s := start(t, l, spec)
			must[Spawned](s)
			must[ReadySaid](s)
		})
	}
}

func TestNotifyFDCannotBeWhereASocketIs(t *testing.T) {
	fd, _ := listeningSocket(t)
	spec := shell("exit 0")
	spec.Sockets, spec.Ready.FD = []int{fd}, 3
	if e := must[Exited](start(t, launcher(t), spec)); e.Step != stepNotify || !strings.Contains(e.Err.Error(), "descriptor 3") {
		t.Errorf("%s", e)
	}
}
