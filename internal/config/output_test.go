package config

import (
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/worker/output"
)

func TestOutputWordOfAnotherSupervisorIsNotAFile(t *testing.T) {
	for word, remedy := range map[string]string{
		"stdout": "the same path for stdout and stderr", "stderr": "the same path for stdout and stderr",
		"STDOUT": "the same path",
		"none":   `write "null"`, "NONE": `write "null"`, "off": `write "null"`, "Null": `write "null"`,
		"syslog": `write "inherit"`, "journal": `write "inherit"`, "journal+console": `write "inherit"`,
		"AUTO": `write "capture"`, "captured": `did you mean "capture"?`, "inherrit": `did you mean "inherit"?`,
		"append:/var/log/Web.log": `write the path alone, "/var/log/Web.log"`, "file:/x": `write the path alone, "/x"`,
	} {
		for _, key := range []string{"stdout", "stderr"} {
			got := messages(t, map[string]string{"c.toml": web + key + " = \"" + word + "\"\n"})
			if !strings.HasPrefix(got, "c.toml:3: program.web."+key+`: "`+word+`" is not a path: `) ||
				!strings.Contains(got, remedy) {
				t.Errorf("%s = %q: got %q, want the remedy %q", key, word, got, remedy)
			}
		}
	}
}

func TestOutputFileMayHaveAnyNameWrittenAsAPath(t *testing.T) {
	for path, name := range map[string]string{"./stdout": "stdout", "none.log": "none.log", "log/syslog": "log/syslog",
		"web": "web"} {
		c := load(t, web+"stdout = \""+path+"\"\n")
		if want := (Output{output.ToFile, filepath.Join(filepath.Dir(c.Files[0]), name)}); c.Programs[0].Stdout != want {
			t.Errorf("%s is %+v, want %+v", path, c.Programs[0].Stdout, want)
		}
	}
}
