package main

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor/program"
)

// patience is the --timeout of a reload: it may have to wait until generations with long downloads have gone.
const patience = "240s"

// deploy deploys a version of a program: mostly one that works.
func (s *soak) deploy(p *deployed, r *rand.Rand) {
	p.deploying.Lock()
	defer p.deploying.Unlock()
	if p.canRoll {
		p.surge = max(0, r.IntN(8)-5)
	}
	switch n := r.IntN(100); {
	case n < 50:
		s.deployGood(p, r)
	case n < 75:
		s.deployBad(p, bad[r.IntN(len(bad))])
	case n < 83:
		s.crowd(p, 2+r.IntN(9))
	case n < 86:
		s.canary(p, r, "1")
	case n < 93:
		s.canary(p, r, strconv.Itoa(5+r.IntN(60))+"%")
	case n < 97:
		s.rollback(p)
	default:
		s.abort(p, r)
	}
}

// deployGood deploys a version that works, which must serve then.
func (s *soak) deployGood(p *deployed, r *rand.Rand) {
	v := good
	if before := p.extra; p.name == "polite" && r.IntN(6) == 0 {
		v.extra = !before
		v.kind = map[bool]string{true: "listener added", false: "listener removed"}[v.extra]
	} else {
		v.extra = before
	}
	if p.canScale && r.IntN(8) == 0 {
		defer s.scale(p, 1+r.IntN(4))
	}
	answer, undisturbed := s.release(p, v)
	served := s.mustServe(p, v, answer, undisturbed)
	if served {
		p.extra = v.extra
	}
	if served && v.extra && undisturbed {
		s.reach(p)
	}
}

// release writes a version and reloads. It reports whether soak left supervisord and the program alone meanwhile.
func (s *soak) release(p *deployed, v version, more ...string) (control.CommandReport, bool) {
	scarce, touched, broken := s.scarce.mark(), p.touched.mark(), s.broken.mark()
	if err := p.write(v); err != nil {
		s.violated("cannot write the configuration: %v", err)
	}
	s.journal.event(v.kind, "%s, version %d %v", p.name, p.version, more)
	r := s.ask(append([]string{"reload", p.name, "--timeout", patience}, more...)...)
	return r, !scarce() && !touched() && !broken()
}

// mustServe checks the answer to a reload with a version that works, and reports whether it serves.
func (s *soak) mustServe(p *deployed, v version, r control.CommandReport, undisturbed bool) bool {
	one, told := about(&r, p.name)
	if undisturbed && !s.over() && (!told || one.Outcome != program.Serves && one.Outcome != control.Killed) {
		s.violated("%s: %s does not serve: %s %s: %s", v.kind, p.name, r.Outcome, one.Reason, r.Error)
	}
	return told && one.Outcome == program.Serves
}

// deployBad deploys a version that fails, which must never serve.
func (s *soak) deployBad(p *deployed, v version) {
	v.extra = p.extra
	var r control.CommandReport
	var undisturbed bool
	release := func() { r, undisturbed = s.release(p, v) }
	if !v.junk {
		release()
		one, told := about(&r, p.name)
		if told && one.Outcome == program.Serves || undisturbed && !s.over() && (!told || !one.Outcome.Failed()) {
			s.violated("%s: %s: %s %s", v.kind, p.name, r.Outcome, r.Error)
		}
		return
	}
	s.broken.during(func() {
		release()
		if r.Outcome != control.Failed {
			s.violated("%s: %s: %s", v.kind, p.name, r.Outcome)
		}
		if err := p.write(version{extra: v.extra}); err != nil {
			s.violated("cannot write the configuration: %v", err)
		}
	})
}

// crowd deploys one version, asked for by many at once. Each is told the outcome of its reload.
func (s *soak) crowd(p *deployed, n int) {
	v := good
	v.kind, v.extra = "reload, asked by a crowd", p.extra
	var all sync.WaitGroup
	defer all.Wait()
	answer, undisturbed := control.CommandReport{}, false
	all.Go(func() {
		answer, undisturbed = s.release(p, v)
		s.mustServe(p, v, answer, undisturbed)
	})
	for range n {
		all.Go(func() { s.ask("reload", p.name, "--timeout", patience) })
	}
}

// canary tries a version on a share of the connections, or a number of workers, and promotes or aborts it. It may be
// refused.
func (s *soak) canary(p *deployed, r *rand.Rand, size string) {
	v := good
	v.kind, v.extra = "canary", p.extra
	promoted, raised := r.IntN(2) == 0, r.IntN(2) == 0
	hold := time.Duration(r.IntN(2000)) * time.Millisecond
	scarce, touched, died := s.scarce.mark(), p.touched.mark(), s.deaths.mark()
	answer, _ := s.release(p, v, "--canary", size, "--hold")
	one, told := about(&answer, p.name)
	if !told || one.Outcome != program.Held {
		s.journal.event("canary refused or failed", "%s: %s %s", p.name, answer.Outcome, answer.Error)
		s.ask("abort", p.name) // if it is held although the answer says otherwise, because supervisord died
		return
	}
	time.Sleep(hold)
	if raised {
		s.ask("promote", p.name, "--canary", "75%")
		s.journal.event("canary's share raised", "%s", p.name)
	}
	if promoted {
		s.journal.event("canary promoted", "%s", p.name)
		answer = s.ask("promote", p.name, "--timeout", patience) // a promotion that is asked for again finds no canary
		s.mustServe(p, v, answer, !scarce() && !touched() && !died())
		return
	}
	s.journal.event("canary aborted", "%s", p.name)
	p.touched.during(func() { s.ask("abort", p.name) })
}

// rollback deploys a version and has the one before serve again.
func (s *soak) rollback(p *deployed) {
	v := good
	v.kind, v.extra = "reload, then rollback", p.extra
	answer, undisturbed := s.release(p, v)
	if !s.mustServe(p, v, answer, undisturbed) {
		return
	}
	p.touched.during(func() {
		r := s.ask("rollback", p.name)
		if r.Exit == 0 {
			s.journal.event("rollback", "%s", p.name)
		} else {
			s.journal.event("rollback refused", "%s: %s", p.name, r.Error)
		}
	})
}

// abort aborts a trial in the middle.
func (s *soak) abort(p *deployed, r *rand.Rand) {
	v := good
	v.kind, v.extra = "reload, aborted", p.extra
	after := time.Duration(r.IntN(700)) * time.Millisecond
	p.touched.during(func() {
		var both sync.WaitGroup
		both.Go(func() { s.release(p, v) })
		time.Sleep(after)
		s.ask("abort", p.name)
		both.Wait()
	})
}

func (s *soak) scale(p *deployed, n int) {
	s.journal.event("scale", "%s to %d", p.name, n)
	p.touched.during(func() { s.ask("scale", p.name, strconv.Itoa(n)) })
}

// reach makes a request of the extra listener.
func (s *soak) reach(p *deployed) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + extraAddress + "/")
	if err != nil {
		s.violated("the extra listener of %s: %v", p.name, err)
		return
	}
	io.Copy(io.Discard, answer.Body) //nolint:errcheck // the status is what matters
	answer.Body.Close()              //nolint:errcheck // it was read
	s.journal.event("request of the extra listener", "%s", answer.Status)
}

// unreachable reports whether nothing listens at the extra address.
func unreachable() bool {
	c, err := net.DialTimeout("tcp", extraAddress, time.Second)
	if err == nil {
		c.Close() //nolint:errcheck // nothing was said
	}
	return err != nil
}
