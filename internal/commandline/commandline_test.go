package commandline

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestNumberOfArgumentsFollowsFromTheUseLine(t *testing.T) {
	for _, c := range []struct {
		use  string
		args []string
		want string // "": they fit
	}{
		{"run", nil, ""},
		{"run", []string{"a"}, `"a" is one argument too many: write ` + "`run`"},
		{"stop PROGRAM", []string{"a"}, ""},
		{"stop PROGRAM", nil, "PROGRAM is missing: write `stop PROGRAM`"},
		{"stop PROGRAM", []string{"a", "b"}, `"b" is one argument too many: write ` + "`stop PROGRAM`"},
		{"scale PROGRAM N", []string{"a"}, "N is missing: write `scale PROGRAM N`"},
		{"scale [PROGRAM] N", nil, "N is missing: write `scale [PROGRAM] N`"},
		{"scale [PROGRAM] N", []string{"a"}, ""},
		{"scale [PROGRAM] N", []string{"a", "b"}, ""},
		{"scale [PROGRAM] N", []string{"a", "b", "c"}, `"c" is one argument too many: write ` + "`scale [PROGRAM] N`"},
		{"events [PROGRAM]", nil, ""},
		{"events [PROGRAM]", []string{"a"}, ""},
		{"events [PROGRAM]", []string{"a", "b"}, `"b" is one argument too many: write ` + "`events [PROGRAM]`"},
		{"reload [PROGRAM...]", []string{"a", "b", "c"}, ""},
		{"cat FILE...", nil, "FILE is missing: write `cat FILE...`"},
		{"cat FILE...", []string{"a", "b"}, ""},
		{"kill PROGRAM --generation N", []string{"a"}, "--generation is missing: write `kill PROGRAM --generation N`"},
		{"kill PROGRAM --generation N", []string{"a", "b"},
			`"b" is one argument too many: write ` + "`kill PROGRAM --generation N`"},
	} {
		got := ""
		if err := countArguments(&cobra.Command{Use: c.use}, c.args); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, given %q: %q, want %q", c.use, c.args, got, c.want)
		}
	}
}

func TestWrappedText(t *testing.T) {
	const text = "A paragraph that was broken\nsomewhere is filled anew.\n\nSignals:\n" +
		"  HUP   read the configuration again\n  INT   stop\n\n  a line of its own that is long\n" +
		"  averyveryverylongwordthatstayswhole"
	const want = "A paragraph that was\nbroken somewhere is\nfilled anew.\n\nSignals:\n  HUP   read the\n" +
		"        configuration\n        again\n  INT   stop\n\n  a line of its own\n  that is long\n" +
		"  averyveryverylongwordthatstayswhole"
	if got := wrap(text, 22); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
