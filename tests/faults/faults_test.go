//go:build amd64

package faults

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

var (
	only    = flag.String("site", "", "inject only where \"SITE: FAULT\" contains this `text`")
	verbose = flag.Bool("each", false, "print each injection")
	seed    = flag.Uint64("seed", 1, "draws the sites of the short form; 0: another `number` each time")
	scenes  = flag.Int("scenes", 1,
		"`number` of supervisords for each operation, which share its faults; -parallel limits it")
)

// operation is something that supervisord does, whose calls fail one at a time.
type operation struct {
	name     string
	do       func(*scene) error // returns why it failed, as the one who asked for it was told
	changes  bool               // another worker serves afterwards
	launches bool               // it starts a supervisord
	fresh    bool               // … and nothing runs before
	tcp      bool               // all listeners are
	keeps    bool               // the generation before is kept
	more     string             // of the configuration
}

// injection is a fault at a site.
type injection struct {
	site
	fault
}

func (i injection) String() string { return i.site.String() + ": " + i.fault.String() }

// sweep injects faults into an operation of supervisords that run.
func sweep(t *testing.T, o operation) {
	sc := begin(t, o)
	all := survey(t, o, sc)
	plan := choose(t, all)
	var came, failures atomic.Int64
	t.Cleanup(func() { // after the scenes
		t.Logf("%s: %d sites, %d faults possible, %d injected, of them %d came; the operation failed %d times",
			o.name, len(all), countFaults(all), len(plan), came.Load(), failures.Load())
	})
	for n := range *scenes {
		first := sc
		if n > 0 {
			first = nil
		}
		t.Run(fmt.Sprintf("scene %d", n+1), func(t *testing.T) {
			t.Parallel()
			play(t, o, first, func(yield func(injection) bool) {
				for i := n; i < len(plan) && yield(plan[i]); i += *scenes {
				}
			}, &came, &failures)
		})
	}
}

// play injects one fault after another, and begins with the scene sc, or with one of its own if it is nil.
func play(t *testing.T, o operation, sc *scene, plan iter.Seq[injection], came, failures *atomic.Int64) {
	for i := range plan {
		if sc == nil {
			sc = begin(t, o)
		}
		after := sc.last(o)
		var hit bool
		var failed error
		began := time.Now()
		wrong := sc.t.safely(func() (err error) {
			hit, failed, err = sc.inject(o, i)
			return err
		})
		if hit {
			came.Add(1)
		}
		if failed != nil {
			failures.Add(1)
		}
		if *verbose {
			t.Logf("%v: came %v, failed %v, took %v", i, hit, failed, time.Since(began).Round(time.Millisecond))
		}
		if wrong != nil {
			t.Errorf("%s: %v: %v\n%s", o.name, i, wrong, sc.excerpt(after))
			sc.end() //nolint:errcheck // it is wrong already
			sc = nil
		} else if f := sc.seam.failed(); f != nil {
			t.Fatalf("the seam: %v", f)
		}
	}
	if sc != nil {
		if err := sc.end(); err != nil {
			t.Errorf("%s: at the end: %v", o.name, err)
		}
	}
}

func countFaults(all []site) (n int) {
	for _, s := range all {
		n += len(s.faults())
	}
	return n
}

// survey does the operation a few times without a fault and returns its sites.
func survey(t *testing.T, o operation, sc *scene) []site {
	t.Helper()
	var all []site
	for range 2 {
		sc.seam.count(site{}, fault{})
		lab.Must(t, sc.t.safely(func() error { return o.do(sc) }))
		sites, unknown := sc.seam.sites()
		sc.seam.rest()
		if o.fresh {
			lab.Must(t, sc.t.safely(func() error { sc.m.Finish(); return nil }))
		} else {
			lab.Must(t, sc.t.safely(sc.reload)) // a rollback needs a generation that is kept
			sc.settled()
		}
		if len(unknown) > 0 {
			t.Errorf("add these to the calls that may fail, or to those that go straight to the kernel: %v", unknown)
		}
		if len(sites) > len(all) {
			all = sites
		}
	}
	if len(all) == 0 {
		t.Fatal("nobody has asked about a call of supervisord")
	}
	return all
}

// choose draws the injections of the short form, one of a fifth of the calls, or takes all.
func choose(t *testing.T, all []site) (plan []injection) {
	for _, s := range all {
		for _, f := range s.faults() {
			if i := (injection{s, f}); strings.Contains(i.String(), *only) {
				plan = append(plan, i)
			}
		}
	}
	if lab.Long() || *only != "" {
		return plan
	}
	number := *seed
	if number == 0 {
		number = uint64(time.Now().UnixNano())
	}
	t.Logf("the sites are drawn by -seed %d", number)
	// A draw by name stays the same when the timing has made a site more or less.
	lot := func(i any) [sha256.Size]byte { return sha256.Sum256(fmt.Append(nil, number, i)) }
	slices.SortFunc(plan, func(a, b injection) int {
		x, y := lot(a), lot(b)
		return bytes.Compare(x[:], y[:])
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(plan, func(i injection) bool {
		again := seen[i.call]
		seen[i.call] = true
		return again || lot(t.Name() + i.call)[0]%5 > 0
	})
}

// inject does the operation once with one fault, and returns whether the fault came, why the operation failed, as the
// one who asked was told, and what is wrong.
func (sc *scene) inject(o operation, i injection) (came bool, failed, wrong error) {
	before := ""
	if !o.fresh {
		if before, wrong = sc.answers(); wrong != nil {
			return false, nil, fmt.Errorf("before the fault: %w", wrong)
		}
	}
	after := sc.last(o)
	hit := sc.seam.count(i.site, i.fault)
	failed = o.do(sc)
	sc.seam.rest()
	select {
	case <-hit:
		came = true
	default:
	}
	return came, failed, sc.sound(o, after, before, i.fault, failed)
}

func TestAnySystemCallMayFailOnce(t *testing.T) {
	for _, o := range []operation{
		{name: "start", do: (*scene).launch, changes: true, launches: true, fresh: true},
		{name: "reload", do: (*scene).reload, changes: true},
		{name: "upgrade", do: (*scene).upgrade},
		{name: "adoption", do: (*scene).adopt, changes: true, launches: true},
		{name: "scale", do: (*scene).scale},
		{name: "canary", do: (*scene).canary, changes: true, more: "workers = 2"},
		{name: "rollback", do: (*scene).rollback, changes: true, keeps: true, more: `reload = { keep = "1h" }`},
		{name: "pause", do: (*scene).pause, tcp: true},
		{name: "request", do: (*scene).request},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			sweep(t, o)
		})
	}
}
