package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// notBehaviour lists the files of the reference's suite that test functions inside its module, not the behaviour of
// start_server.
var notBehaviour = map[string]string{
	"08-wait3.t": "it calls the private functions _set_sighandler and _wait3 of the Perl module",
}

// TestStartServerPassesTheTestsOfTheReference runs the suite of Server::Starter, unmodified, with start_server in the
// place of the reference: tests/server-starter has a Server::Starter that runs it.
func TestStartServerPassesTheTestsOfTheReference(t *testing.T) {
	t.Parallel()
	suite := referenceSuite(t)
	files, err := filepath.Glob(filepath.Join(suite, "t", "*.t"))
	lab.Must(t, err)
	ran := 0
	for _, file := range files {
		name := filepath.Base(file)
		if notBehaviour[name] != "" {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly sleeps
			referenceTest(t, suite, name)
		})
	}
	if ran < 14 {
		t.Errorf("the suite in %s has %d files, want 14 or more", suite, ran)
	}
}

// referenceTest runs one file. The suite relies on sleeps of whole seconds, so on a busy machine a file gets further
// tries, in which it sleeps longer. A file that gives up leaves its start_server behind, which has the pipe of the
// output.
func referenceTest(t *testing.T, suite, name string) {
	m := lab.PrepareStarter(t)
	lab.Must(t, os.Symlink(lab.Built.StartServer, m.Path("start_server")))
	module, err := filepath.Abs("server-starter")
	lab.Must(t, err)
	var out []byte
	for _, times := range []string{"1", "1", "2", "4", "8"} {
		c := exec.Command("perl", "-I"+module, "-Ilib", "t/"+name)
		c.Dir = suite
		c.Env = append(m.Environ(), "START_SERVER="+m.Path("start_server"), "TMPDIR="+m.Dir, "SLEEP_TIMES="+times)
		c.WaitDelay = 10 * time.Second
		out, err = c.CombinedOutput()
		m.Sweep()
		passed := regexp.MustCompile(`(?m)^ok `).Match(out)
		if err == nil && passed && !regexp.MustCompile(`(?m)^\s*not ok `).Match(out) {
			return
		}
	}
	t.Errorf("%s: %v\n%s", name, err, out)
}

// referenceSuite downloads and unpacks the source of the reference: Debian's source package, from the mirror of this
// machine. The project does not contain it.
func referenceSuite(t *testing.T) string {
	t.Helper()
	lab.Need(t, "perl")
	lab.Need(t, "apt-get")
	if out, err := exec.Command("perl", "-MTest::TCP", "-MTest::SharedFork", "-MTest::Requires", "-MNet::EmptyPort",
		"-e1").CombinedOutput(); err != nil {
		t.Skipf("the suite of the reference needs Perl modules that are not installed (libtest-tcp-perl, "+
			"libtest-sharedfork-perl, libtest-requires-perl): %s",
			strings.SplitN(string(out), "\n", 2)[0])
	}
	dir := t.TempDir()
	argv := []string{"sh", "-ec", fetchReference, "sh", dir}
	if network := os.Getenv("SUPERVISORD_LAB_NETWORK"); network != "" { // that of the machine: scripts/test makes another
		argv = append([]string{"nsenter", "--net=" + network}, argv...)
	}
	fetch := exec.Command(argv[0], argv[1:]...)
	if out, err := fetch.CombinedOutput(); err != nil {
		t.Skipf("the suite of the reference cannot be fetched: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "source", "*", "t"))
	lab.Must(t, err)
	if len(found) != 1 {
		t.Skipf("the source of the reference has changed: %v", found)
	}
	return filepath.Dir(found[0])
}

// fetchReference downloads the source package with a private apt configuration, derived from this machine's.
var fetchReference = fmt.Sprintf(`
cd "$1"
mkdir -p sources lists/partial cache/archives/partial source
for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
	[ ! -f "$f" ] || sed -n 's/^deb /deb-src /p' "$f" >"sources/$(basename "$f")"
done
for f in /etc/apt/sources.list.d/*.sources; do
	[ ! -f "$f" ] || sed 's/^Types:.*/Types: deb-src/' "$f" >"sources/$(basename "$f")"
done
cat >apt.conf <<END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$1/sources";
Dir::State::Lists "$1/lists";
Dir::Cache "$1/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$1/apt.conf"
timeout %[1]d apt-get -qq update
cd source
timeout %[1]d apt-get -qq --download-only --tar-only source libserver-starter-perl
tar xf *.orig.tar.*
`, 60)
