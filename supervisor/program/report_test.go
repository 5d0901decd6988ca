package program

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a person reads of each kind is in testdata/reports.txt: TestTranscripts asks for it.
func TestEveryReportIsASentence(t *testing.T) {
	text, err := os.ReadFile("testdata/reports.txt")
	if err != nil {
		t.Fatal(err)
	}
	for kind := range kinds {
		if !strings.Contains(string(text), fmt.Sprintf("\n{\"id\": %q", kind)) {
			t.Errorf("%s has no example in testdata/reports.txt", kind)
		}
	}
}

func TestEveryKindOfReportHasWordsAndAnIDOfItsOwn(t *testing.T) {
	constants := reportKinds(t)
	if len(constants) == 0 || len(constants) != len(kinds) {
		t.Errorf("%d kinds have %d rows", len(constants), len(kinds))
	}
	seen := map[string]ReportKind{}
	for _, kind := range constants {
		words, has := kinds[kind]
		if !has || words.level == "" || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(string(kind)) {
			t.Errorf("%q has the words %+v", kind, words)
		}
		sentence := kind.Sentence()
		if other, twice := seen[sentence]; twice || strings.ContainsAny(sentence, "{}") || strings.Contains(sentence, "  ") {
			t.Errorf("%s has the sentence %q, as %q", kind, sentence, other)
		}
		seen[sentence] = kind
	}
}

// reportKinds returns every constant that is a kind of report.
func reportKinds(t *testing.T) (list []ReportKind) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "report.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok || len(s.Values) != 1 {
			return true
		}
		if kind, ok := s.Type.(*ast.Ident); ok && kind.Name == "ReportKind" {
			text, _ := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			list = append(list, ReportKind(text))
		}
		return true
	})
	return list
}

// The list of events in docs/logs.md is between these lines.
const (
	listOfEvents = "../../docs/logs.md"
	listBegins   = "| `event` | level | `msg` |\n| --- | --- | --- |\n"
)

func TestDocsListEveryEvent(t *testing.T) {
	var list strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&list, "| `%s` | %s | %s |\n", kind, kinds[kind].level, kind.Sentence())
	}
	text, err := os.ReadFile(listOfEvents)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), listBegins)
	old, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no list of events", listOfEvents)
	}
	if *update {
		text := before + listBegins + list.String() + "\n" + after
		if err := os.WriteFile(listOfEvents, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old+"\n" != list.String() {
		t.Errorf("the list of events in docs/logs.md is not that of the code; regenerate it with: go test " +
			"./supervisor/program -run DocsListEveryEvent -update")
	}
}

func TestDurationsForPeopleAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1400 * time.Microsecond: "1ms", 999 * time.Millisecond: "999ms", time.Second: "1s", 1360 * time.Millisecond: "1.4s",
		time.Minute: "1m0s", 61400 * time.Millisecond: "1m1s", time.Hour: "1h0m", 90*time.Minute + 40*time.Second: "1h31m",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}

func TestWhatBeginsOrWaitsPromisesANumber(t *testing.T) {
	promise := regexp.MustCompile(`^(a reload|the start) waits|^generation starts`)
	for kind := range kinds {
		if r := (&Report{Kind: kind}); r.Promises() != promise.MatchString(kind.Sentence()) {
			t.Errorf("%s promises a number: %v", kind, r.Promises())
		}
	}
}
