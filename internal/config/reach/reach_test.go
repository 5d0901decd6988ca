package reach

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
)

func reached(url, listener string) bool { return ofURL(url).reaches(addr(listener)) }

func TestProbeReachesListenerHoweverItIsWritten(t *testing.T) {
	for _, c := range []struct{ url, listener string }{
		{"http://127.0.0.1:8080/", "127.0.0.1:8080"},
		{"https://127.0.0.1:8080", "127.0.0.1:8080"},
		{"http://user:p@127.0.0.1:8080/x@y", "127.0.0.1:8080"},
		{"http://0.0.0.0:8080/", "127.0.0.1:8080"},
		{"http://[::]:8080/", "[::1]:8080"},
		{"http://:8080/", "127.0.0.1:8080"},
		{"http://localhost:8080/", "127.0.0.1:8080"},
		{"http://LocalHost.:8080/", "[::1]:8080"},
		{"http://api.localhost:8080/", ":8080"},
		{"http://127.0.0.1:8080/", "localhost:8080"},
		{"http://127.0.0.1:8080/", ":8080"},
		{"http://127.0.0.1:8080/", "0.0.0.0:8080"},
		{"http://127.0.0.1:8080/", "[::]:8080"},
		{"http://127.0.0.2:8080/", "0.0.0.0:8080"},
		{"http://[::1]:8080/", ":8080"},
		{"http://[::ffff:127.0.0.1]:8080/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "[::ffff:127.0.0.1]:8080"},
		{"http://[fe80::1%25lo]:8080/", "[fe80::1%lo]:8080"},
		{"http://[0:0::1]:8080/", "[::1]:8080"},
		{"http://127.0.0.1:08080/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "127.0.0.1:08080"},
		{"http://127.0.0.1/", "127.0.0.1:80"},
		{"https://127.0.0.1/", "127.0.0.1:443"},
		{"http://[::1]/", "[::1]:80"},
		{"http://127.0.0.1:?x=1", "127.0.0.1:80"},
		{"http://unknown.internal:8080/", "Unknown.Internal.:8080"},
		{"http://127.0.0.1:808{slot}/", "127.0.0.1:8087"},
		{"http://127.0.0.1:808{slot}/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8{generation}/", "127.0.0.1:8123"},
		{"http://127.0.0.1:{pid}/", "127.0.0.1:8080"},
		{"http://127.0.0.1:{slot}8080/", "127.0.0.1:8080"}, // slot 0
		{"http://127.0.0.{slot}:8080/", "127.0.0.7:8080"},
		{"http://127.0.0.{slot}:8080/", ":8080"},
		{"unix:/run/web.sock:/health", "unix:/run/web.sock"},
		{"unix:/run//x/../web.sock:/health", "unix:/run/web.sock"},
		{"unix:/run/web{slot}.sock:/health", "unix:/run/web3.sock"},
		{"unix:@web:/health", "unix:@web"},
	} {
		if !reached(c.url, c.listener) {
			t.Errorf("%s reaches %s, but was not found to", c.url, c.listener)
		}
	}
}

func TestProbeOfASeparateAddressReachesNoListener(t *testing.T) {
	for _, c := range []struct{ url, listener string }{
		{"http://127.0.0.1:8081/", "127.0.0.1:8080"},
		{"http://127.0.0.2:8080/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "[::1]:8080"},
		{"http://localhost:8080/", "127.0.0.2:8080"},
		{"http://203.0.113.1:8080/", ":8080"},
		{"http://far.internal:8080/", ":8080"},
		{"http://unknown.internal:8080/", ":8080"},
		{"http://web.internal:8080/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "udp:127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "127.0.0.1:0"},
		{"http://127.0.0.1:8080/", "unix:/run/web.sock"},
		{"http://127.0.0.1:900{slot}/", "127.0.0.1:8080"},
		{"http://127.0.0.1:808{slot}1/", "127.0.0.1:8080"},
		{"http://127.0.0.1:{generation}80/", "127.0.0.1:80"},
		{"unix:/run/web.sock:/health", "unix:/run/other.sock"},
		{"unix:/run/web.sock:/health", "unix:@/run/web.sock"},
		{"unix:/run/{pid}.sock:/health", "unix:/run/web.sock"},
		{"unix:/run/web.sock:/", "127.0.0.1:80"},
	} {
		if reached(c.url, c.listener) {
			t.Errorf("%s does not reach %s, but was found to", c.url, c.listener)
		}
	}
}

func addr(s string) socket.Address { return must.Be(socket.ParseAddress(s)) }

func TestListenerInAProbeIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"http://{listener:http}/healthz":        "http http://127.0.0.1:80/healthz",
		"https://{listener:http}":               "http https://127.0.0.1:80",
		"http://{listener:http}?x={pid}":        "http http://127.0.0.1:80?x={pid}",
		"{listener:http}":                       "http 127.0.0.1:80",
		"{listener::8080}":                      ":8080 127.0.0.1:80",
		"http://{listener:[::1]:80}/":           "[::1]:80 http://127.0.0.1:80/",
		"http://{listener:unix:/run/w.sock}/ok": "unix:/run/w.sock http://127.0.0.1:80/ok",
		"http://127.0.0.1:9000/{pid}":           " http://127.0.0.1:9000/{pid}",
	} {
		name, filled, ok := CutListener(text)
		if got := name + " " + filled; !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, ok, want)
		}
	}
}

func TestListenerThatIsNotTheWholeHostAndPortIsWrong(t *testing.T) {
	for _, text := range []string{
		"http://{listener:http}:8080/", "http://{listener:http", "http://{listener:}/", "http://me@{listener:http}/",
		"http://x/{listener:http}",
		"{listener:http}x", "unix:{listener:http}:/healthz", "unix:/run/{listener:http}", "http://{pid}{listener:http}/",
	} {
		if name, filled, ok := CutListener(text); ok {
			t.Errorf("%s is taken for the listener %q, %s", text, name, filled)
		}
	}
}

func TestProbeIsRewrittenForAListener(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:8080/healthz?x":  "http://{listener:web}/healthz?x",
		"https://me:x@localhost":           "https://{listener:web}/",
		"unix:/run/web.sock:/healthz":      "http://{listener:web}/healthz",
		"unix:/run/web.sock":               "{listener:web}",
		"[::1]:8080":                       "{listener:web}",
		"http://{listener:http}/{slot}?#x": "http://{listener:web}/{slot}?#x",
	} {
		if got := ToListener(text, "web"); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// FuzzCutListener: what is found is in the text, and a probe that is rewritten for a listener names that listener.
func FuzzCutListener(f *testing.F) {
	f.Add("http://{listener:http}/healthz", "a")
	f.Add("unix:/run/{pid}.sock:/x", ":80")
	f.Fuzz(func(t *testing.T, text, listener string) {
		name, filled, ok := CutListener(text)
		if ok && (name == "") != (filled == text) || name != "" && !strings.Contains(text, Placeholder+name+"}") {
			t.Errorf("%q: found %q, filled in %q", text, name, filled)
		}
		if listener == "" || strings.Contains(listener, "}") || strings.Contains(text, Placeholder) {
			return
		}
		for _, probe := range []string{"http://" + text, "unix:/" + text, "unix:/a:/" + text} {
			to := ToListener(probe, listener)
			if got, _, ok := CutListener(to); !ok || got != listener {
				t.Errorf("%q for the listener %q became %q, which names %q", probe, listener, to, got)
			}
		}
	})
}
