package program

import (
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

// BenchmarkRoll measures the cost per worker of replacing a thousand workers in the core.
func BenchmarkRoll(b *testing.B) {
	for _, strategy := range []config.Strategy{config.All, config.Rolling} {
		b.Run(string(strategy), func(b *testing.B) {
			const workers = 1000
			c := testConfig(workers, strategy)
			c.Reload.MaxSurge = 50
			p, now := New(c), time.Unix(1_000_000, 0)
			play(p, now, p.Step(now, Start{Config: c}))
			for b.Loop() {
				play(p, now, p.Step(now, Reload{}))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/workers, "µs/worker")
		})
	}
}

// play answers every action like workers that start and stop at once.
func play(p *Program, now time.Time, actions []Action) {
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		switch a := a.(type) {
		case Prepare:
			actions = append(actions, p.Step(now, Prepared{Generation: a.Generation.Number})...)
		case Spawn:
			actions = append(actions, p.Step(now, Did{a.Worker.Number, life.Spawned{PID: 1}})...)
			actions = append(actions, p.Step(now, Did{a.Worker.Number, life.ReadySaid{}})...)
		case SendSignal:
			actions = append(actions, p.Step(now, Did{a.Worker, life.Exited{}})...)
		}
	}
}
