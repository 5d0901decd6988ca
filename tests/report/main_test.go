package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// events is the output of a run: a test with a subtest that fails and a script that does, one that is skipped, one that
// passes, and a package that cannot be built.
const events = `
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"run","Package":"a","Test":"TestX/one"}
{"Action":"output","Package":"a","Test":"TestX/one","Output":"    x_test.go:7: this is why\n"}
{"Action":"fail","Package":"a","Test":"TestX/one"}
{"Action":"run","Package":"a","Test":"TestX/two"}
{"Action":"output","Package":"a","Test":"TestX/two","Output":"    script.go:1: all that it did\n"}
{"Action":"output","Package":"a","Test":"TestX/two","Output":"        FAIL: two.txtar:9: what failed\n"}
{"Action":"fail","Package":"a","Test":"TestX/two"}
{"Action":"fail","Package":"a","Test":"TestX"}
{"Action":"run","Package":"a","Test":"TestY"}
{"Action":"output","Package":"a","Test":"TestY","Output":"=== RUN   TestY\n"}
{"Action":"output","Package":"a","Test":"TestY","Output":"    y_test.go:9: only root can: really\n"}
{"Action":"output","Package":"a","Test":"TestY","Output":"--- SKIP: TestY (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestY"}
{"Action":"output","Package":"a","Test":"TestS","Output":"    script_test.go:3: no such tool: go:\n"}
{"Action":"output","Package":"a","Test":"TestS","Output":"        it said more\n"}
{"Action":"output","Package":"a","Test":"TestS","Output":"    testscript.go:584: WORK=/tmp\n"}
{"Action":"output","Package":"a","Test":"TestS","Output":"        > packed\n"}
{"Action":"skip","Package":"a","Test":"TestS"}
{"Action":"run","Package":"a","Test":"TestZ"}
{"Action":"pass","Package":"a","Test":"TestZ"}
{"Action":"fail","Package":"a","Elapsed":1.5}
{"ImportPath":"b","Action":"build-output","Output":"b.go:1: undefined\n"}
{"Action":"output","Package":"b","Output":"FAIL\tb [build failed]\n"}
{"Action":"fail","Package":"b"}
{"Action":"pass","Package":"c","Elapsed":2}
`

func TestReportCountsTestsAndShowsFailures(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "counts")
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	counts, err := os.ReadFile(path)
	if want := "1 3 2\nfailed a TestX/one: x_test.go:7: this is why\n" +
		"failed a TestX/two: FAIL: two.txtar:9: what failed\nfailed b: FAIL b [build failed]\n" +
		"skipped a TestY: only root can: really\nskipped a TestS: no such tool: go:\n"; err != nil || string(counts) != want {
		t.Errorf("the file has %q (%v), want %q", counts, err, want)
	}
	for _, want := range []string{"this is why", "b.go:1: undefined", "FAIL  b", "ok    c  2.0s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not contain %q:\n%s", want, &out)
		}
	}
}

func TestReportShowsUnfinishedTests(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	cut := `{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"a","Elapsed":600}
`
	if err := r.read(strings.NewReader(cut)); err != nil {
		t.Fatal(err)
	}
	if len(r.failed) != 1 || !strings.Contains(out.String(), "panic: test timed out") {
		t.Errorf("%q failed:\n%s", r.failed, &out)
	}
}
