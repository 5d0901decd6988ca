package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/convert/source"
)

func TestForemanLineIsConvertedWithItsProcfileAndEnvironmentFiles(t *testing.T) {
	for flags, want := range map[string][]string{
		"start -m web=2": {`environment_file = ["/srv/app/.env"]`, `workers          = 2`, `PORT = "7000"`,
			`[program.worker]`, "timeout = \"5s\""},
		"start -e a.env web": {`environment_file = ["/srv/app/a.env"]`, `PORT = "5000"`, `#[program.worker]`},
		"start -f Procfile -p 80 -t1": {`environment_file = ["/srv/app/.env"]`, `timeout = "1s"`,
			`directory        = "/srv/app"`},
		"start --no-color": {`--no-color: no equivalent`},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"Procfile": "web: ./web\nworker: ./worker $X\n", ".env": "PORT=7000\n",
			"a.env": "A=1\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Convert(source.Input{Args: append([]string{"foreman"}, strings.Fields(flags)...)}, elsewhere(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !strings.Contains(r.Text, line) {
				t.Errorf("foreman %s: no %s in\n%s", flags, line, r.Text)
			}
		}
	}
}

func TestSocketsOfASocketfileAreListeners(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"Procfile": "web: ./web\nqueue: ./queue\nrun: cd x && ./run\n",
		"Socketfile": "# opened by foreman\nweb: http=:3000\nqueue: rest=127.0.0.1:3100 grpc=[::1]:50051\ngone: a=:1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Convert(source.Input{Args: []string{"foreman", "start"}}, elsewhere(dir))
	if err == nil {
		err = check(t, r)
	}
	for _, want := range []string{"name    = \"http\"\naddress = \":3000\"\n",
		"name    = \"rest\"\naddress = \"127.0.0.1:3100\"\n",
		"name    = \"grpc\"\naddress = \"[::1]:50051\"\n", "the Procfile has no process gone"} {
		if err != nil || strings.Count(r.Text, want) != 1 {
			t.Errorf("%v: not once %q in\n%s", err, want, r.Text)
		}
	}
	if strings.Count(r.Text, ".reload]") != 1 ||
		!strings.Contains(r.Text, "[program.run.reload]\nstrategy = \"stop-first\"") {
		t.Errorf("stop-first is not that of run alone:\n%s", r.Text)
	}
	for text, want := range map[string]string{"web: http\n": "is not NAME: SOCKET=ADDRESS", "web http=:1\n": "is not NAME",
		"web: http=x\n": "x"} {
		if err := os.WriteFile(filepath.Join(dir, "Socketfile"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Convert(source.Input{Args: []string{"foreman", "start"}}, elsewhere(dir))
		if err == nil || !strings.Contains(err.Error(), "Socketfile:1") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err = Convert(source.Input{Name: filepath.Join(dir, "Socketfile"), Text: "web: http=:1\n"}, elsewhere(dir))
	if err == nil || !strings.Contains(err.Error(), "supervisord convert "+filepath.Join(dir, "Procfile")) {
		t.Errorf("the Socketfile itself: %v", err)
	}
}

func TestSimpleProcfileCommandsNeedNoShellThatStays(t *testing.T) {
	for command, want := range map[string]string{
		`./web -p 1 'a b' "c"\ d`:      `["./web", "-p", "1", "a b", "c d"]`,
		`./web -p $PORT`:               `["sh", "-c", "exec ./web -p $PORT"]`,
		`./web >log 2>&1`:              `["sh", "-c", "exec ./web >log 2>&1"]`,
		`A=1 ./web`:                    `["sh", "-c", "exec env A=1 ./web"]`,
		`exec ./web $A`:                `["sh", "-c", "exec ./web $A"]`,
		`./web *.conf`:                 `["sh", "-c", "exec ./web *.conf"]`,
		`./web ~/x`:                    `["sh", "-c", "exec ./web ~/x"]`,
		`./web x~ {y} '*' "\$A" # why`: `["./web", "x~", "{y}", "*", "$A"]`,
	} {
		r, err := Convert(source.Input{Kind: source.Procfile, Name: "Procfile", Text: "web: " + command + "\n"},
			elsewhere("testdata"))
		if err != nil || !strings.Contains(r.Text, "command   = "+want+"\n") || strings.Contains(r.Text, "group") {
			t.Errorf("%s: %v, no %s in\n%s", command, err, want, r.Text)
		}
	}
	for _, command := range []string{"cd x && ./web", "./a | ./b", "if true; then ./web; fi", "./web &", "! ./web"} {
		r, err := Convert(source.Input{Kind: source.Procfile, Name: "Procfile", Text: "web: " + command + "\n"},
			elsewhere("testdata"))
		if err != nil || !strings.Contains(r.Text, `command   = ["sh", "-c", "`+command+`"]`) ||
			!strings.Contains(r.Text, "group   = true") {
			t.Errorf("%s: %v\n%s", command, err, r.Text)
		}
	}
}
