package config

import (
	"reflect"
	"strings"
	"testing"

	"example.org/supervisord/worker/ready"
)

const probed = "[program.web]\ncommand = [\"true\"]\n[program.web.ready]\nmethod = \"http\"\n" +
	"url = \"http://127.0.0.1:9000/\"\n"

func TestStatusesOfAProbe(t *testing.T) {
	for text, want := range map[string][]ready.StatusRange{
		`204`: {{First: 204, Last: 204}}, `"200-399"`: nil, `"200-299"`: {{First: 200, Last: 299}},
		`[200, "300-308", "404"]`: {{First: 200, Last: 200}, {First: 300, Last: 308}, {First: 404, Last: 404}},
	} {
		if got := load(t, probed+"status = "+text+"\n").Programs[0].Ready.Status; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %v", text, got)
		}
	}
	for _, text := range []string{`99`, `600`, `"2xx"`, `"399-200"`, `true`, `[200, "x"]`, `""`, `{}`} {
		if wrong := messages(t, map[string]string{"c.toml": probed + "status = " + text + "\n"}); !strings.Contains(wrong,
			"neither a status of HTTP") {
			t.Errorf("%s: %q", text, wrong)
		}
	}
}

func TestHeadersOfAProbe(t *testing.T) {
	want := map[string]string{"Host": "www.example.com", "X-A": "b"}
	if got := load(t, probed+"headers = { Host = \"www.example.com\", X-A = \"b\" }\n").Programs[0].Ready.Headers; !reflect.DeepEqual(got, want) {
		t.Errorf("they are read as %v", got)
	}
	for _, text := range []string{`"Host: x"`, `{ "a b" = "x" }`, `{ Host = 1 }`, `{ Host = "a\r\nb" }`} {
		if wrong := messages(t, map[string]string{"c.toml": probed + "headers = " + text + "\n"}); !strings.Contains(wrong,
			"ready.headers") {
			t.Errorf("%s: %q", text, wrong)
		}
	}
}
