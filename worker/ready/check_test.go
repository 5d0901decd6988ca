package ready

import (
	"fmt"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func TestTargetOfAProbe(t *testing.T) {
	for _, r := range []Check{
		{Method: HTTP, URL: "localhost:80"}, {Method: HTTP, URL: "unix:"}, {Method: HTTP, URL: "unix:a.sock"}, {Method: HTTP,
			URL: "http://%zz"},
		{Method: HTTP, URL: "http://:80/"}, {Method: TCP, Address: "localhost"}, {Method: TCP,
			Address: "unix:"}, {Method: TCP, Address: "unix:@"},
		{Method: TCP, Address: "unix:/" + strings.Repeat("x", maxSocketPath)},
	} {
		if network, address, err := r.Target(); err == nil {
			t.Errorf("%+v goes to %s %s", r, network, address)
		}
	}
	for want, r := range map[string]Check{
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

func TestProbeOfAListenerNamesItAsItsWholeHost(t *testing.T) {
	for _, c := range []Check{
		{Method: HTTP, URL: "http://{listener:web}/healthz"}, {Method: HTTP, URL: "https://{listener:web}/a?b={pid}"},
		{Method: HTTP, URL: "http://{listener:web}"}, {Method: TCP, Address: "{listener:web}"},
	} {
		c.Listener = "web"
		if network, address, err := c.Target(); network+address != "" || err != nil {
			t.Errorf("%+v goes to %s %s, %v", c, network, address, err)
		}
	}
	for _, c := range []Check{
		{Method: HTTP, URL: "http://{listener:web}:80/"}, {Method: HTTP, URL: "http://x{listener:web}/"}, {Method: HTTP,
			URL: "{listener:web}/"},
		{Method: HTTP, URL: "http://localhost/{listener:web}"}, {Method: TCP, Address: "{listener:web}:80"}, {Method: TCP,
			Address: "x"},
		{Method: HTTP, URL: "http://{listener:web}/%zz"},
	} {
		c.Listener = "web"
		if _, _, err := c.Target(); err == nil {
			t.Errorf("%+v was accepted", c)
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
