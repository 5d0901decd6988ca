package getopt

import (
	"fmt"
	"strings"
	"testing"
)

var options = []Flag{
	{Name: "number", Short: "n", Kind: Number}, {Name: "name", Short: "a", Kind: Text}, {Name: "verbose", Short: "v",
		Kind: Switch},
	{Name: "verify", Kind: Text, Extra: true},
}

func TestParseReadsEverySpelling(t *testing.T) {
	for line, want := range map[string]string{
		"-vn3 x -v":             "0:-v 0:-n 3 rest [1 2]",
		"--num=3 --verb --na x": "0:--number=3 1:--verbose 2:--name=x rest []",
		"-a b -- -v":            "0:-a b rest [3]",
		"--ver x":               "0:--verbose rest [1]",
		"--veri x":              "0:--verify=x rest []",
		"--n 3":                 "error option n is ambiguous (number, name)",
		"-x --number=y --name": "error unknown option: x, value \"y\" invalid for option number (number expected), " +
			"option name requires an argument",
		"--verbose=1 --nonsense": "error option verbose does not take an argument, unknown option: nonsense",
	} {
		if got := parsed(Syntax{Options: options}, line); got != want {
			t.Errorf("%s is read as %s, want %s", line, got, want)
		}
	}
	if got, want := parsed(Syntax{Options: options, Anywhere: true}, "x -v y -- -v"), "1:-v rest [0 2 4]"; got != want {
		t.Errorf("with options anywhere it is %s, want %s", got, want)
	}
}

func parsed(s Syntax, words string) string {
	line, mistakes := s.Parse(strings.Fields(words))
	if len(mistakes) > 0 {
		var all []string
		for _, m := range mistakes {
			all = append(all, m.What)
		}
		return "error " + strings.Join(all, ", ")
	}
	var b strings.Builder
	for _, g := range line.Given {
		fmt.Fprintf(&b, "%d:%s ", g.Word, g)
	}
	return fmt.Sprintf("%srest %v", b.String(), line.Rest)
}
