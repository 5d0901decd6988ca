package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/supervisord/supervisor"
)

// collector collects the values of one scrape. It describes nothing beforehand: which programs there are, only the status says.
type collector struct {
	metrics *Metrics
	status  *supervisor.Status
}

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c.metrics.collect(&values{to: to}, c.status) }

// values is where the values of a scrape go.
type values struct {
	to   chan<- prometheus.Metric
	kind prometheus.ValueType
	help string
}

// family begins a metric; its samples follow.
func (v *values) family(kind prometheus.ValueType, help string) { v.kind, v.help = kind, help }

// single adds a metric without labels.
func (v *values) single(name string, kind prometheus.ValueType, help string, value float64) {
	v.family(kind, help)
	v.sample(name, value)
}

// sample adds one value; labels are pairs of name and value.
func (v *values) sample(name string, value float64, labels ...string) {
	var names, texts []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, texts = append(names, labels[i]), append(texts, valid(labels[i+1]))
	}
	v.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, v.help, names, nil), v.kind, value, texts...)
}

// valid replaces what is not UTF-8 in the value of a label.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// durations are the histograms of a program.
type durations struct{ reload, quiet, drain prometheus.Histogram }

func newDurations(name string) durations {
	of := func(metric, help string, buckets ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metric, Help: help, Buckets: buckets, ConstLabels: prometheus.Labels{"program": valid(name)},
		})
	}
	return durations{
		reload: of("supervisord_reload_duration_seconds", "From the start of a reload until the new generation serves.",
			.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300),
		quiet: of("supervisord_quiet_duration_seconds", "From the moment old workers get no new connections until they have nothing in hand.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60),
		drain: of("supervisord_drain_duration_seconds", "From the moment a generation is told to stop until it is gone.",
			.05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600),
	}
}
