package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/proc"
)

// rival is a supervisor with one worker, which is reloaded again and again.
type rival struct {
	side    side // of ours
	name    string
	address string
	pid     int
	stop    func()
	stamps  string // what its workers record; "": they record nothing

	vitals          vitals // when it was idle
	cpu             time.Duration
	answered, began []time.Duration // since HUP: the first answer of the new worker, and its main
}

// ask returns what a worker answers on a new connection.
func (p *rival) ask() (answer string, err error) {
	s := &load.Driver{Dial: load.Dial(p.address),
		Ask: load.Get("http://bench/", func(_ *http.Response, body []byte) error { answer = string(body); return nil })}
	defer s.Close()
	if a := s.Send(time.Now()); a.Lost != nil {
		return "", fmt.Errorf("%s: %w", p.name, a.Lost)
	}
	return answer, nil
}

// reload sends HUP and asks until the answer is another one.
func (p *rival) reload(ctx context.Context) error {
	old, err := p.ask()
	if err != nil {
		return err
	}
	hup := clock.Monotonic()
	if err := unix.Kill(p.pid, unix.SIGHUP); err != nil {
		return err
	}
	for clock.Monotonic()-hup < kit.Patience && ctx.Err() == nil {
		now, err := p.ask()
		if err != nil {
			return err
		}
		if now != old {
			p.answered = append(p.answered, clock.Monotonic()-hup)
			return p.readMain(hup)
		}
	}
	return cmp.Or(context.Cause(ctx), fmt.Errorf("%s: no new worker answers", p.name))
}

// readMain records when the newest worker began.
func (p *rival) readMain(hup time.Duration) error {
	if p.stamps == "" {
		return nil
	}
	at, err := readStamps(p.stamps)
	if err != nil {
		return err
	}
	newest := time.Duration(0)
	for _, m := range at {
		newest = max(newest, m.main)
	}
	p.began = append(p.began, newest-hup)
	return nil
}

func (p *rival) String() string {
	began := "–"
	if len(p.began) > 0 {
		began = sorted(p.began).String()
	}
	n := time.Duration(len(p.answered))
	return fmt.Sprintf("%s; %s; %s; %s", began, sorted(p.answered), load.Short(p.cpu/n), mib(p.vitals.pss))
}

// measurePeers reloads supervisord and the other supervisors that are installed in turn. start_server considers a
// worker ready when it has lived for a second, so a turn takes longer than that.
func (b *bench) measurePeers(ctx context.Context, sides []side) error {
	b.side = side{}
	peers, err := b.startPeers(ctx, sides)
	defer func() {
		for _, p := range peers {
			p.stop()
		}
	}()
	if err != nil {
		return err
	}
	f, err := newFloor(b.dir)
	if err != nil {
		return err
	}
	defer f.close()
	if err := b.takeTurns(ctx, peers, f); err != nil {
		return err
	}
	n := len(f.main)
	b.show(fmt.Sprintf("a bare fork and exec of the same worker → its main, %d times, p50 / p99 / max", n),
		sorted(f.main).String())
	for _, p := range peers {
		b.side = p.side
		b.show(fmt.Sprintf("%s, one worker, %d reloads: HUP → its main; → its first answer; the master's CPU of a reload; "+
			"memory (PSS)", p.name, n), p.String())
	}
	b.side = side{}
	return b.measurePlain(ctx)
}

func (b *bench) takeTurns(ctx context.Context, peers []*rival, f *floor) (err error) {
	const turn = 1500 * time.Millisecond
	if err := kit.Pause(ctx, 2*turn); err != nil { // the first workers have lived for their second
		return err
	}
	for _, p := range peers {
		if p.vitals, err = vitalsOf(p.pid); err != nil {
			return err
		}
	}
	for i := range b.less(50, 5) {
		ended := time.Now().Add(turn)
		for _, k := range rand.Perm(len(peers)) { // in no fixed order: the first finds the caches cold
			if err := peers[k].reload(ctx); err != nil {
				return err
			}
		}
		if err := cmp.Or(f.measure(b.light, i+1), kit.Pause(ctx, time.Until(ended))); err != nil {
			return err
		}
	}
	for _, p := range peers {
		after, err := clock.CPU(p.pid)
		if err != nil {
			return err
		}
		p.cpu = after - p.vitals.cpu
	}
	return nil
}

// startPeers starts our sides and what is installed. The peers that it returns are running, even if it fails.
func (b *bench) startPeers(ctx context.Context, sides []side) (peers []*rival, err error) {
	for _, s := range sides {
		stamped, err := b.serveStamped(ctx, s, 1, "")
		if err != nil {
			return peers, err
		}
		peers = append(peers, &rival{side: s, name: "supervisord", address: stamped.Addresses[0], pid: stamped.PID(),
			stop: stamped.Abandon, stamps: stamped.file})
	}
	golang := filepath.Join(b.dir, "start_server")
	err = kit.BuildTool(ctx, golang, "github.com/lestrrat-go/server-starter/cmd/start_server")
	if err != nil {
		return peers, err
	}
	for _, other := range []struct {
		name, program string
		command       func(address string) ([]string, error)
	}{
		{"start_server (Go, lestrrat)", golang, b.underStartServer},
		{"start_server (Perl)", "start_server", b.underStartServer},
		{"nginx (its own worker)", "nginx", b.underNginx},
	} {
		path, err := exec.LookPath(other.program)
		if err != nil {
			b.show(other.name, "not installed")
			continue
		}
		p := &rival{name: other.name, address: kit.FreeAddress()}
		args, err := other.command(p.address)
		if err != nil {
			return peers, err
		}
		cmd := exec.Command(path, args...)
		if slices.Contains(args, b.light) {
			p.stamps = filepath.Join(b.dir, fmt.Sprintf("stamps of peer %d", len(peers)))
			cmd.Env = append(cmd.Environ(), "BENCH_STAMPS="+p.stamps)
		}
		c, err := kit.Alone(ctx, p.address, cmd)
		if err != nil {
			return peers, err
		}
		p.pid = c.Cmd.Process.Pid
		p.stop = func() {
			workers := proc.Children(p.pid)
			c.Stop(5 * time.Second)
			for _, pid := range workers {
				unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // a supervisor that had to be killed leaves it behind
			}
		}
		peers = append(peers, p)
	}
	return peers, nil
}

func (b *bench) underStartServer(address string) ([]string, error) {
	return []string{"--port", address, "--", b.light}, nil
}

func (b *bench) underNginx(address string) ([]string, error) {
	dir, err := os.MkdirTemp(b.dir, "nginx")
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("daemon off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log;\nevents {}\n"+
		"http { access_log off; server { listen %[2]s; location / { return 200 $pid; } } }\n", dir, address)
	path := filepath.Join(dir, "nginx.conf")
	return []string{"-c", path, "-e", filepath.Join(dir, "error.log")}, os.WriteFile(path, []byte(text), 0o600)
}

// measurePlain restarts the example worker as one does without a supervisor: TERM, wait, start. The worker is told not
// to linger for idle connections, which would be pointless here.
func (b *bench) measurePlain(ctx context.Context) error {
	address := kit.FreeAddress()
	start := func() (*process.Child, error) {
		return kit.Alone(ctx, address, exec.Command(b.hello, "-address", address, "-linger", "1ms"))
	}
	w, err := start()
	if err != nil {
		return err
	}
	defer func() { w.Stop(0) }()
	restart := func() error {
		w.Stop(kit.Patience)
		next, err := start()
		if err == nil {
			w = next
		}
		return err
	}
	const rate = 500
	var l steadyLoad
	err = kit.During(ctx, time.Second, restart, func() (err error) {
		l, err = steady(ctx, address, rate, time.Duration(b.less(10, 4))*time.Second)
		return err
	})
	b.show(fmt.Sprintf("no supervisor, kill and start each second, %d/s, p50 / p99 / max", rate), l.String())
	return err
}
