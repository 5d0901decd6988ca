package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestRunIsTheDefaultCommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-c"}, {"run", "-c"}, {"run", "--config"}} {
		m := prepare(t)
		m.write(web)
		m.launch(append(args, m.path("config.toml"))...)
		m.serves(1)
		m.finish()
	}
}

func TestCheckSaysOK(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.write(web)
	if out, code := m.run("check", "-c", m.path("config.toml")); out != "ok\n" || code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckSaysWhatIsWrongWithFileAndLine(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path := m.file("c.toml", "[program.web]\ncommand = [\"true\"]\nworkerz = 2\n")
	out, code := m.run("check", "-c", path)
	if code != 78 || !strings.Contains(out, path+":3: ") || !strings.Contains(out, "workers") {
		t.Errorf("exit code %d, and no place or no nearest key: %s", code, out)
	}
}

func TestCheckSaysEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path := m.file("c.toml", "[program.a]\ncommand = \"true\"\n[program.b]\ncommand = [\"true\"]\nworkers = 0\n[[program.b.listen]]\naddress = \"nowhere\"\n")
	out, code := m.run("check", "-c", path)
	for _, place := range []string{":2: ", ":5: ", ":7: "} {
		if code != 78 || !strings.Contains(out, path+place) {
			t.Errorf("exit code %d, and nothing about line %s: %s", code, place, out)
		}
	}
}

func TestACommandThatIsAStringIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path := m.file("c.toml", "[program.a]\ncommand = \"./web -v\"\n")
	if out, code := m.run("check", "-c", path); code != 78 || !strings.Contains(out, `["./web", "-v"]`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckFindsWhatIsWrongInAnIncludedFile(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	wrong := m.file("conf.d/b.toml", "[program.b]\n\ncommand = 7\n")
	path := m.file("c.toml", "[supervisor]\ninclude = [\"conf.d/*.toml\"]\n[program.a]\ncommand = [\"true\"]\n")
	if out, code := m.run("check", "-c", path); code != 78 || !strings.Contains(out, wrong+":3: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckSaysThatDelayIsWhatEveryProgramPasses(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path := m.file("c.toml", "[program.a]\ncommand = [\"true\"]\n")
	if out, code := m.run("check", "-c", path); code != 0 || !strings.Contains(out, "warning: "+path+":") || !strings.Contains(out, "delay") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckOfAMissingFileSaysWhich(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	if out, code := m.run("check", "-c", m.path("nowhere.toml")); code != 78 || !strings.Contains(out, m.path("nowhere.toml")) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckTouchesNothing(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.write("pid_file = \"{dir}/p.pid\"\n" + strings.Replace(web, "127.0.0.1:0", "unix:{dir}/s", 1))
	m.run("check", "-c", m.path("config.toml"))
	entries, err := os.ReadDir(m.dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("besides the configuration there is %v", entries)
	}
}

func TestTheExampleConfigurationIsRight(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path, err := filepath.Abs("../config.toml.example")
	must(t, err)
	if out, code := m.run("check", "-c", path); code != 0 || !strings.HasSuffix(out, "ok\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestVersionIsOneLine(t *testing.T) {
	t.Parallel()
	out, code := prepare(t).run("version")
	if code != 0 || !regexp.MustCompile(`^supervisord \S.* go1\.\S+\n$`).MatchString(out) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestHelpNamesTheCommandsAndTheSignals(t *testing.T) {
	t.Parallel()
	out, code := prepare(t).run("--help")
	for _, word := range []string{"run", "check", "version", "--config", "HUP", "TERM", "QUIT", "USR1"} {
		if code != 0 || !strings.Contains(out, word) {
			t.Errorf("exit code %d, and nothing of %s: %s", code, word, out)
		}
	}
}

func TestAnUnknownCommandExitsWith1(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"nonsense"}, {"check", "--nonsense"}, {"run", "too", "many"}} {
		if out, code := prepare(t).run(args...); code != 1 || !strings.HasPrefix(out, "supervisord: ") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

func TestRunWithABadConfigurationExitsWith78(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.write(web + "[program.web.stop]\ntimeout = 5\n")
	if out, code := m.run("run", "-c", m.path("config.toml")); code != 78 || !strings.Contains(out, m.path("config.toml")+":") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestRunWithAnAddressInUseExitsWith1AndNamesIt(t *testing.T) {
	t.Parallel()
	taken := occupy(t)
	m := prepare(t)
	m.write(strings.Replace(web, "127.0.0.1:0", taken, 1))
	out, code := m.run("run", "-c", m.path("config.toml"))
	if code != 1 || !strings.Contains(out, taken) || !strings.Contains(out, "in use") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestTheLogIsJSONWithoutATerminal(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	if first := m.serves(1); first.Time.IsZero() || first.Level != "info" || first.Program != "web" {
		t.Errorf("the line is %+v", first)
	}
}

func TestTheLogIsForPeopleOnATerminal(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.write(web)
	m.via = terminalCommand(t)
	m.launch("-c", m.path("config.toml"))
	l := m.await(contains(generationServes))
	if strings.HasPrefix(l.text, "{") {
		t.Errorf("on a terminal there is JSON: %s", l.text)
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	m.ends(0)
}

func TestTheLogFormatIsAsConfigured(t *testing.T) {
	t.Parallel()
	m := start(t, "log_format = \"console\"\n"+web)
	if l := m.await(contains(generationServes)); strings.HasPrefix(l.text, "{") || !strings.Contains(l.text, "INFO") {
		t.Errorf("with log_format = console: %s", l.text)
	}
}

func TestTheLogLevelIsAsConfigured(t *testing.T) {
	t.Parallel()
	m := start(t, "log_level = \"warn\"\n"+webWith("exit=1"))
	m.await(says(startRetry))
	m.never(func(l line) bool { return l.Level == "info" || l.Level == "debug" })
}
