package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

// insideWords are what the code calls its parts. A user needs program, listener, worker, generation, reload, drain and
// canary, and no others on the first day.
var insideWords = regexp.MustCompile(
	`(?i)\b(lanes?|quiet|quiesce[sd]?|in hand|receipts?|snapshots?|images?|records?|(on )?trials?|finishing)\b`)

// notProse is what a reader of Markdown does not read: where links lead, and tags.
var notProse = regexp.MustCompile(`\]\([^)]*\)|<[^>]*>`)

// TestFirstDayNeedsNoWordOfTheInside reads the sentences of the log, of status and of the commands that wait, README
// and getting-started.
func TestFirstDayNeedsNoWordOfTheInside(t *testing.T) {
	texts := map[string]string{}
	for _, file := range []string{"README.md", "docs/getting-started.md"} {
		text := must.Get(os.ReadFile("../../" + file))(t)
		texts[file] = notProse.ReplaceAllString(string(text), " ")
	}
	for file, holder := range map[string]string{
		"supervisor/program/report.go": "kinds", "cmd/supervisord/status.go": "", "cmd/supervisord/overview.go": "",
		"cmd/supervisord/live.go":       "",
		"cmd/supervisord/verdict.go":    "",
		"supervisor/program/summary.go": "",
	} {
		texts[file] = strings.Join(literals(t, "../../"+file, holder), "\n")
	}
	for file, text := range texts {
		if len(text) < 100 {
			t.Errorf("%s has only %d characters of text", file, len(text))
		}
		for _, at := range insideWords.FindAllStringIndex(text, -1) {
			t.Errorf("%s says %q: …%s…", file, text[at[0]:at[1]],
				strings.ReplaceAll(text[max(0, at[0]-40):min(len(text), at[1]+40)], "\n", " "))
		}
	}
}

// literals returns the strings in a file, or in one variable of it, that are not imports.
func literals(t *testing.T, file, variable string) (texts []string) {
	t.Helper()
	parsed := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
	collect := func(n ast.Node) bool {
		if _, is := n.(*ast.ImportSpec); is {
			return false
		}
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value)
			texts = append(texts, text)
		}
		return true
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		switch {
		case variable == "":
			return collect(n)
		case is && spec.Names[0].Name == variable:
			ast.Inspect(spec, collect)
		}
		return true
	})
	return texts
}
