package program

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

// What a person reads of each kind is in testdata/reports.txt: TestTranscripts asks for it.
func TestEveryReportIsASentence(t *testing.T) {
	text := must.Get(os.ReadFile("testdata/reports.txt"))(t)
	for kind := range kinds {
		if !strings.Contains(string(text), fmt.Sprintf("\n{\"id\": %q", kind)) {
			t.Errorf("%s has no example in testdata/reports.txt", kind)
		}
	}
}

func TestEveryKindOfReportHasWordsAndAnIDOfItsOwn(t *testing.T) {
	source, err := os.ReadFile("report.go")
	constants := regexp.MustCompile(`\bReportKind += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if err != nil || len(constants) == 0 || len(constants) != len(kinds) {
		t.Errorf("%d kinds have %d rows: %v", len(constants), len(kinds), err)
	}
	seen := map[string]ReportKind{}
	for _, constant := range constants {
		kind := ReportKind(constant[1])
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

func TestDocsListEveryEvent(t *testing.T) {
	var list strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&list, "| `%s` | %s | %s |\n", kind, kinds[kind].level, kind.Sentence())
	}
	generated(t, "../../docs/logs.md", "| `event` | level | `msg` |\n| --- | --- | --- |\n", "\n", list.String())
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
