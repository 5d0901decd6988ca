package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// helloProgram is the example worker, two of it.
func (b *bench) helloProgram() string {
	return fmt.Sprintf("command = [%q]\nworkers = 2\nready = { method = \"notify\" }", b.hello)
}

// load is one kind of load under reloads.
type load struct {
	name  string
	bring func(b *bench, address string, requests int) (result, error)
}

func loads() []load {
	own := func(keep bool) func(*bench, string, int) (result, error) {
		return func(_ *bench, address string, requests int) (result, error) {
			return hammer(address, 1000, requests, keep), nil
		}
	}
	all := []load{{"new connection per request", own(false)}, {"keep-alive", own(true)}}
	if _, err := exec.LookPath("ab"); err == nil {
		all = append(all, load{"ab -c 1000", ab()}, load{"ab -k -c 1000", ab("-k")})
	}
	return all
}

func (b *bench) measureFailed() error {
	var errs []error
	for _, every := range []time.Duration{time.Second, 100 * time.Millisecond} {
		for _, l := range loads() {
			errs = append(errs, b.measureLoad(l, every))
		}
	}
	return errors.Join(errs...)
}

func (b *bench) measureLoad(l load, every time.Duration) error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	m, err := b.startMaster(dir, b.helloProgram(), "")
	if err != nil {
		return err
	}
	defer m.abandon()
	if _, err := m.await(serves, 1); err != nil {
		return err
	}
	r, sent, err := b.loadAndReload(l, m, every)
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	reloads := m.drain(serves)
	trouble := ""
	if m.killed > 0 || m.failed > 0 {
		trouble = fmt.Sprintf("; %d workers were killed, %d generations failed", m.killed, m.failed)
	}
	b.row(fmt.Sprintf("failed requests: %s, 1,000 connections, a HUP every %s", l.name, every), "0",
		fmt.Sprintf("%s; %d HUPs, %d reloads%s", r, sent, reloads, trouble), verdictOf(r.failed == 0 && trouble == "" && reloads > 0))
	_, err = m.stop()
	return err
}

// loadAndReload brings the load, and more of it until it has seen three HUPs.
func (b *bench) loadAndReload(l load, m *master, every time.Duration) (all result, sent int, err error) {
	hups := m.reloadEvery(every)
	for begin := time.Now(); err == nil && (all.requests == 0 || time.Since(begin) < 3*every+every/2); {
		var r result
		r, err = l.bring(b, m.address, b.less(100_000, 10_000))
		all.add(r)
	}
	return all, hups.end(), err
}

// ab is Apache's load generator, which others have published figures with. Without -r it would end at the first failure.
func ab(flags ...string) func(*bench, string, int) (result, error) {
	return func(b *bench, address string, requests int) (result, error) {
		args := append([]string{"-q", "-r", "-s", "30", "-c", "1000", "-n", strconv.Itoa(requests)}, flags...)
		began := time.Now()
		var out bytes.Buffer
		cmd := exec.Command("ab", append(args, "http://"+address+"/healthz")...)
		cmd.Stdout, cmd.Stderr = &out, &out
		err := b.children.start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		text := out.Bytes()
		r := result{requests: requests, took: time.Since(began)}
		if err != nil {
			return r, fmt.Errorf("ab: %w: %s", err, text)
		}
		complete, known := abCount(text, "Complete requests")
		failed, known2 := abCount(text, "Failed requests")
		if !known || !known2 {
			return r, fmt.Errorf("ab does not say what it did: %s", text)
		}
		other, _ := abCount(text, "Non-2xx responses") // only said when there are any
		r.failed = failed + other + requests - complete
		return r, nil
	}
}

// abCount finds a count in what ab prints.
func abCount(text []byte, name string) (int, bool) {
	found := regexp.MustCompile(name + `:\s+(\d+)`).FindSubmatch(text)
	if found == nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(found[1]))
	return n, err == nil
}
