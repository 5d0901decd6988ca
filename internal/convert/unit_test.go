package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/convert/source"
)

// unitFiles writes files, and converts one of them as `supervisord convert NAME` does.
func unitFiles(t *testing.T, name string, files map[string]string) (Result, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := elsewhere(dir)
	text, err := w.Read("/srv/app/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return Convert(source.Input{Name: name, Text: text}, w)
}

func contains(t *testing.T, r Result, err error, want ...string) {
	t.Helper()
	if err == nil {
		err = check(t, r)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Text)
	}
	for _, line := range want {
		if !strings.Contains(r.Text, line) {
			t.Errorf("no %s in\n%s", line, r.Text)
		}
	}
}

func TestServiceIsConvertedWithItsSocketAndDropIns(t *testing.T) {
	files := map[string]string{
		"web.service": "[Service]\nType=notify\nExecStart=/srv/venv/bin/gunicorn --pid /run/web.pid app.wsgi\n" +
			"Environment=A=1 B=2\nUser=nobody\n",
		"web.socket": "[Socket]\nListenStream=/run/web.sock\nSocketUser=www-data\nSocketMode=600\n[Install]\n" +
			"WantedBy=sockets.target\n",
		"web.service.d/10-a.conf": "[Service]\nEnvironment=A=3\nTimeoutStopSec=40\n",
		"web.service.d/20-b.conf": "[Service]\nUser=daemon\nExecStart=\n" +
			"ExecStart=/srv/venv/bin/gunicorn --pid /run/web.pid --workers 2 app.wsgi\n",
	}
	want := []string{"[program.web]", `address = "unix:/run/web.sock"`, `name    = "web.socket"`, `mode    = "0600"`,
		`user    = "www-data"`, `A = "3"`, `B = "2"`, `timeout = "40s"`,
		`user      = "daemon"`, `"--workers", "2", "app.wsgi"]`,
		"web.service:5: User = nobody: ignored: set again at /srv/app/web.service.d/20-b.conf:2",
		"web.service:3: ExecStart = /srv/venv/bin/gunicorn --pid /run/web.pid app.wsgi: ignored", `method  = "notify"`,
		"--pid /run/web.pid is removed"}
	for _, name := range []string{"web.service", "web.socket"} {
		r, err := unitFiles(t, name, files)
		contains(t, r, err, want...)
		if strings.Contains(r.Text, "stop-first") || r.Kind != source.Systemd {
			t.Errorf("%s: %s\n%s", name, r.Kind, r.Text)
		}
	}
}

func TestTemplateIsConvertedForAnInstance(t *testing.T) {
	template := "[Service]\nExecStart=/usr/bin/uvicorn --port %i app:app\nWorkingDirectory=/srv/%p/%i\n"
	r, err := unitFiles(t, "web@8001.service",
		map[string]string{"web@8001.service": template, "web@.service.d/x.conf": "[Service]\nNice=3\n"})
	contains(t, r, err, "[program.web-8001]", `["/usr/bin/uvicorn", "--port", "8001", "app:app"]`,
		`address = "127.0.0.1:8001"`, `"/srv/web/8001"`, "nice = 3")
	if _, err := unitFiles(t, "web@.service", map[string]string{"web@.service": template}); err == nil ||
		!strings.Contains(err.Error(), "supervisord convert web@NAME.service") {
		t.Error(err)
	}
}

func TestSocketOfUnknownServerIsInherited(t *testing.T) {
	r, err := unitFiles(t, "echo.service",
		map[string]string{"echo.service": "[Service]\nExecStart=/usr/bin/echod\nSockets=a.socket\n",
			"a.socket": "[Socket]\nListenStream=7\n"})
	contains(t, r, err, `address = ":7"`, `method = "accept"`)
	if strings.Contains(r.Text, "stop-first") {
		t.Error(r.Text)
	}
	for name, files := range map[string]map[string]string{
		"a.service": {"a.service": "[Service]\nExecStart=/x\nSockets=b.socket\n"},
		"b.socket":  {"b.socket": "[Socket]\nListenStream=7\n"},
	} {
		if _, err := unitFiles(t, name, files); err == nil ||
			!strings.Contains(err.Error(), "convert them from one directory") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
