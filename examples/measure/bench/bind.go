package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// measureBind compares servers that open their port, below the filter, with the same servers that inherit it, without.
func (b *bench) measureBind(ctx context.Context) error {
	return cmp.Or(b.bindThroughput(ctx, "Go", b.goServer), b.nginxThroughput(ctx), b.bindStart(ctx))
}

// server is a server that opens the address, or else inherits it.
type server func(opens bool, address string) (kit.ProgramTable, error)

// keys are those of a program with or without the filter.
func keys(opens bool) string {
	if opens {
		return "bind = \"on\"\ndialect = []"
	}
	return "bind = \"off\""
}

func (b *bench) goServer(opens bool, address string) (kit.ProgramTable, error) {
	t := table(b.hello, "1", keys(opens), "")
	t.Command = append(t.Command, "-address", address)
	return t, nil
}

func (b *bench) nginxThroughput(ctx context.Context) error {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		b.show("nginx that opens its port", "nginx is not installed")
		return nil
	}
	return b.bindThroughput(ctx, "nginx", func(opens bool, address string) (kit.ProgramTable, error) {
		dir, err := os.MkdirTemp(b.dir, "nginx")
		if err != nil {
			return kit.ProgramTable{}, err
		}
		config := filepath.Join(dir, "nginx.conf")
		text := fmt.Sprintf("daemon off; pid %s/pid; worker_processes 1; events {}\n"+
			"http { access_log off; keepalive_requests 10000000;\n"+
			"server { listen %s; return 200 ok; }\n", dir, address)
		for _, temporary := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			text += fmt.Sprintf("%s_temp_path %s/%[1]s;\n", temporary, dir)
		}
		text += "}\n"
		t := table(nginx, "1", keys(opens), "nonblock = true")
		t.Command = append(t.Command, "-c", config, "-e", "stderr")
		if !opens {
			t.More += "\nenvironment = { NGINX = \"{fd:http};\" }"
		}
		return t, os.WriteFile(config, []byte(text), 0o600)
	})
}

// bindThroughput measures both in turn, with new connections and with keep-alive.
func (b *bench) bindThroughput(ctx context.Context, name string, make server) error {
	var subjects [2]*kit.Subject
	for i, opens := range []bool{false, true} {
		address := kit.FreeAddress()
		t, err := make(opens, address)
		if err != nil {
			return err
		}
		t.Ready, t.Listen[0].Address = `method = "accept"`, address
		if subjects[i], err = b.side.Serve(ctx, t); err != nil {
			return err
		}
		defer subjects[i].Abandon()
	}
	for _, kind := range []struct {
		what string
		keep int
	}{{"new connections", 0}, {"keep-alive", 64}} {
		var perSecond [2][]float64
		var ratios []float64
		for round := range b.less(41, 5) {
			var rate [2]float64
			for n := range subjects {
				i := (n + round) % 2 // each is first as often: what others do in a round concerns both
				var err error
				if rate[i], err = throughput(subjects[i].Addresses[0], kind.keep, b.less(5_000, 2_000)); err != nil {
					return err
				}
				perSecond[i] = append(perSecond[i], rate[i])
			}
			ratios = append(ratios, rate[1]/rate[0])
		}
		off, on, ratio := median(perSecond[0]), median(perSecond[1]), median(ratios)
		b.require(fmt.Sprintf("throughput of %s that opens its port : that inherits it, %s, 64 clients, in turn", name,
			kind.what), "≥ 0.97",
			fmt.Sprintf("%.2f, median of %d ratios (%.0f/s : %.0f/s, medians)", ratio, len(ratios), on, off), ratio >= 0.97)
	}
	return nil
}

// throughput is what 64 clients get in a second.
func throughput(address string, keep, requests int) (perSecond float64, err error) {
	var r load.Collector
	l := load.New(r.Add)
	l.Loop(client(address, keep), 64, requests, nil)
	l.Wait()
	all := r.Attempts()
	if lost, _ := all.Lost(); lost > 0 {
		return 0, fmt.Errorf("%d requests failed without a reload", lost)
	}
	return float64(len(all)) / l.Now().Seconds(), nil
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// bindStart compares the starts of the same worker, which inherits its socket, without the filter and with it.
func (b *bench) bindStart(ctx context.Context) error {
	var subjects [2]*stamped
	for i, bind := range []string{"off", "on"} {
		file := filepath.Join(b.dir, "stamps-bind-"+bind)
		s, err := b.side.serve(ctx, b.light, "1", fmt.Sprintf("environment = { BENCH_STAMPS = %q }\nbind = %q", file, bind),
			shared)
		if err != nil {
			return err
		}
		defer s.Abandon()
		subjects[i] = &stamped{b.side, s, s.Path(file), map[int]time.Duration{}, map[int]time.Duration{}}
	}
	for range b.less(300, 20) {
		for _, s := range subjects {
			if err := cmp.Or(s.reload(ctx, 0), kit.Pause(ctx, rest)); err != nil {
				return err
			}
		}
	}
	var p50 [2]time.Duration
	for i, s := range subjects {
		at, err := readStamps(s.file)
		if err != nil {
			return err
		}
		p50[i] = s.since(at, func(generation int, _, _ *moments) time.Duration { return s.hups[generation] },
			func(_ int, _, now *moments) time.Duration { return now.main }).Quantile(0.5)
	}
	more := p50[1] - p50[0]
	b.require("HUP → the worker's main with the filter, beyond that without (p50)", "≤ 0.3 ms",
		fmt.Sprintf("%s (%s : %s)", load.Short(more), load.Short(p50[1]), load.Short(p50[0])), more <= 300*time.Microsecond)
	return nil
}
