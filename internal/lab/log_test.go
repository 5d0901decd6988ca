package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestReportOfALogBeginsWithTheCause: a reader of a failed run may see no more than its first 3,000 characters.
func TestReportOfALogBeginsWithTheCause(t *testing.T) {
	var log Transcript
	for range 300 {
		log.Add(fmt.Sprintf(`{"level":"info","time":"2026-01-02T03:04:05.678Z","msg":"worker runs","reason":%q}`,
			strings.Repeat("x", 1000)))
	}
	log.Add(`{"level":"warn","time":"2026-01-02T03:04:06Z","msg":"not obeyed","signal":"TERM"}`)
	for range 1000 {
		log.Add("goroutine 1 [running]:")
	}
	report := log.Report()[:3000]
	for _, want := range []string{"03:04:06.000 WARN not obeyed: signal=TERM\n", "goroutine 1 [running]:\n",
		"03:04:05.678 worker runs: reason=xxx"} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in the beginning:\n%s", want, report)
		}
	}
	var plain Transcript
	plain.Add("starting new worker 7")
	if report := plain.Report(); !strings.HasPrefix(report, "its last lines, in short:\nstarting new worker 7\n") {
		t.Errorf("without JSON: %s", report)
	}
}
