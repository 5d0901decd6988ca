package reach

import (
	"strings"
	"testing"
)

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
