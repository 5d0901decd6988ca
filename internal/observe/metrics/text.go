package metrics

import (
	"bytes"
	"strconv"
	"strings"
)

// text is written in Prometheus' text format, version 0.0.4. It is written by hand because the client library would cost every
// worker's start a millisecond (the binary is executed for each) and the supervisor a quarter of its memory; the tests hold what
// comes out against the library's parser and its rules.
type text struct{ bytes.Buffer }

// contentType is that of the format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// family begins a metric. Its samples follow.
func (t *text) family(name, kind, help string) {
	t.WriteString("# HELP " + name + " " + helpEscapes.Replace(help) + "\n# TYPE " + name + " " + kind + "\n")
}

// sample is one value; labels are pairs of name and value.
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
	bounds []float64 // seconds, rising
	counts []uint64  // one more than bounds; not cumulated
	sum    float64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

func (h *histogram) write(t *text, name string, labels ...string) {
	total := uint64(0)
	for i, n := range h.counts {
		total += n
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = number(h.bounds[i])
		}
		t.sample(name+"_bucket", float64(total), append(append([]string(nil), labels...), "le", bound)...)
	}
	t.sample(name+"_sum", h.sum, labels...)
	t.sample(name+"_count", float64(total), labels...)
}
