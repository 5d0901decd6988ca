package kit

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// Totals is what one load, or several in turn, came to.
type Totals struct {
	Requests, Failed int
	Took             time.Duration
	First            string // the first failure, if it is known
}

// String is "0 failed of 10000", and the first failure.
func (t *Totals) String() string {
	text := fmt.Sprintf("%d failed of %d", t.Failed, t.Requests)
	if t.First != "" {
		text += fmt.Sprintf(" (the first: %s)", t.First)
	}
	return text
}

// PerSecond returns the requests of a second.
func (t *Totals) PerSecond() string { return fmt.Sprintf("%.0f", float64(t.Requests)/t.Took.Seconds()) }

// Add adds requests to the tally.
func (t *Totals) Add(all load.Attempts, took time.Duration) {
	t.Requests += len(all)
	t.Took += took
	for _, s := range all {
		if s.Lost == nil {
			continue
		}
		t.Failed++
		if t.First == "" {
			t.First = s.Lost.Text
		}
	}
}

// HasAB reports whether ab is installed (Debian: apache2-utils).
func HasAB() bool {
	_, err := exec.LookPath("ab")
	return err == nil
}

// AB runs Apache's load generator and adds what it reports.
func (t *Totals) AB(ctx context.Context, url string, clients, requests int, keep bool) error {
	// without -r it would end at the first failure
	args := []string{"-q", "-r", "-s", "30", "-c", strconv.Itoa(clients), "-n", strconv.Itoa(requests)}
	if keep {
		args = append(args, "-k")
	}
	began := time.Now()
	out, err := exec.CommandContext(ctx, "ab", append(args, url)...).CombinedOutput()
	t.Took += time.Since(began)
	if err != nil {
		return fmt.Errorf("ab: %w: %s", err, out)
	}
	counts := map[string]int{}
	for _, line := range abCount.FindAllStringSubmatch(string(out), -1) {
		counts[line[1]], _ = strconv.Atoi(line[2])
	}
	complete, known := counts["Complete requests"]
	failed, counted := counts["Failed requests"]
	if !known || !counted {
		return fmt.Errorf("ab does not report what it did: %s", out)
	}
	t.Requests += requests
	t.Failed += failed + counts["Non-2xx responses"] + requests - complete
	return nil
}

// abCount is a line of ab's report: "Complete requests:      1000".
var abCount = regexp.MustCompile(`(?m)^([A-Z][^:\n]*):\s+(\d+)$`)
