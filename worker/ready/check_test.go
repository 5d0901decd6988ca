package ready

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// TestTargetOfAProbe: "" is where a listener is, which is named as the whole host, or no probe; "refused" is an error.
func TestTargetOfAProbe(t *testing.T) {
	for target, want := range map[string]string{
		"https://[::1]:1/x": "tcp [::1]:1", "http://a/x": "tcp a:80", "https://[::1]": "tcp [::1]:443",
		"unix:/a.sock:/x": "unix /a.sock", "unix:@a": "unix @a", "localhost:80": "refused", "unix:": "refused",
		"unix:a.sock": "refused", "http://%zz": "refused", "http://:80/": "refused",
		"http://{listener:web}/healthz": "", "https://{listener:web}/a?b={pid}": "", "http://{listener:web}": "",
		"http://{listener:web}:80/": "refused", "http://x{listener:web}/": "refused", "{listener:web}/": "refused",
		"http://localhost/{listener:web}": "refused", "http://{listener:web}/%zz": "refused",

		"tcp [::1]:80": "tcp [::1]:80", "tcp unix:/a/b:c": "unix /a/b:c", "tcp 127.0.0.1:1": "tcp 127.0.0.1:1",
		"tcp localhost": "refused", "tcp unix:": "refused", "tcp unix:@": "refused",
		"tcp unix:/" + strings.Repeat("x", maxSocketPath): "refused",
		"tcp {listener:web}":                              "",
		"tcp {listener:web}:80":                           "refused", "tcp x{listener:web}": "refused",
	} {
		c := Check{Method: HTTP, URL: target}
		if address, is := strings.CutPrefix(target, "tcp "); is {
			c = Check{Method: TCP, Address: address}
		}
		if strings.Contains(target, "{listener:web}") {
			c.Listener = "web"
		}
		network, address, err := c.Target()
		got := strings.TrimSpace(network + " " + address)
		if err != nil {
			got = "refused"
		}
		if got != want {
			t.Errorf("%+v goes to %q (%v), want %q", c, got, err, want)
		}
	}
	if network, _, err := (Check{Method: Notify, URL: "http://localhost/"}).Target(); network != "" || err != nil {
		t.Errorf("no probe goes to %q: %v", network, err)
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

// TestProbeThatGetsNoAnswerSaysSo: it closes its connection itself, and that says nothing to people.
func TestProbeThatGetsNoAnswerSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe := Check{Method: HTTP, Listener: "web", URL: "http://{listener:web}/"}.Probe(Asked{
			Dial: func(context.Context, string) (net.Conn, error) {
				conn, worker := net.Pipe()
				go io.Copy(io.Discard, worker)
				return conn, nil
			},
		})
		if err := probe(t.Context()); err == nil || err.Error() != "http://{listener:web}/: no answer within 5s" {
			t.Error(err)
		}
	})
}
