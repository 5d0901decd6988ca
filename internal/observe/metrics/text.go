package metrics

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// text is Prometheus' text format, version 0.0.4. It is written by hand: the client library would add a millisecond to the start of every
// worker, for which this binary is executed, and a quarter to the supervisor's memory. The tests check the result with the library's
// parser and linter.
type text struct{ bytes.Buffer }

const contentType = "text/plain; version=0.0.4; charset=utf-8"

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// family begins a metric; its samples follow.
func (t *text) family(name, kind, help string) {
	t.WriteString("# HELP " + name + " " + helpEscapes.Replace(help) + "\n# TYPE " + name + " " + kind + "\n")
}

// single writes a metric without labels.
func (t *text) single(name, kind, help string, value float64) {
	t.family(name, kind, help)
	t.sample(name, value)
}

// sample writes one value; labels are pairs of name and value.
func (t *text) sample(name string, value float64, labels ...string) {
	t.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		t.WriteString(separator + labels[i] + `="` + labelEscapes.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")) + `"`)
	}
	if len(labels) > 1 {
		t.WriteByte('}')
	}
	t.WriteString(" " + number(value) + "\n")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// histogram counts durations in buckets.
type histogram struct {
	bounds []float64 // seconds, ascending
	counts []uint64  // one more than bounds; not cumulative
	sum    float64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

func (h *histogram) write(t *text, name, program string) {
	total := uint64(0)
	for i, n := range h.counts {
		total += n
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = number(h.bounds[i])
		}
		t.sample(name+"_bucket", float64(total), "program", program, "le", bound)
	}
	t.sample(name+"_sum", h.sum, "program", program)
	t.sample(name+"_count", float64(total), "program", program)
}
