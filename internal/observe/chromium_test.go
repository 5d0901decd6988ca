package observe

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is a headless Chromium, driven over a pipe by the Chrome DevTools protocol: JSON messages, each ended by a NUL.
type browser struct {
	*testing.T
	out     *os.File
	session string
	id      int

	mu       sync.Mutex
	answers  map[int]chan reply
	problems []string // errors that the page reported
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// message is any message from the browser.
type message struct {
	ID     int
	Method string
	Params json.RawMessage
	reply
}

func browse(t *testing.T, url string) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	fromUs, toThem := pipe(t)
	fromThem, toUs := pipe(t)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // 3 is read, 4 is written
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fromUs.Close()
	toUs.Close()
	b := &browser{T: t, out: toThem, answers: map[int]chan reply{}}
	var reading sync.WaitGroup
	reading.Go(func() { b.read(fromThem) })
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		toThem.Close()
		reading.Wait()
		fromThem.Close()
		for range 50 { // its children write until they have exited
			if os.RemoveAll(dir) == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	b.open(url)
	return b
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func (b *browser) read(from *os.File) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			b.answers[m.ID] <- m.reply
			delete(b.answers, m.ID)
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
			b.problems = append(b.problems, string(m.Params))
		}
		b.mu.Unlock()
	}
}

// call waits for the answer to one command.
func (b *browser) call(method string, params any, into any) {
	b.Helper()
	b.id++
	c := make(chan reply, 1)
	b.mu.Lock()
	b.answers[b.id] = c
	b.mu.Unlock()
	text, err := json.Marshal(map[string]any{"id": b.id, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": b.id, "method": method, "params": params})
	}
	if _, bad := b.out.Write(append(text, 0)); err != nil || bad != nil {
		b.Fatal(errors.Join(err, bad))
	}
	select {
	case r := <-c:
		if r.Error != nil {
			b.Fatalf("%s: %s", method, r.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(r.Result, into); err != nil {
				b.Fatal(err)
			}
		}
	case <-time.After(patience):
		b.Fatalf("chromium does not answer %s", method)
	}
}

type fields map[string]any

func (b *browser) open(url string) {
	b.Helper()
	var target struct{ TargetID string }
	b.call("Target.createTarget", fields{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", fields{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Runtime.enable", fields{}, nil)
	b.call("Log.enable", fields{}, nil)
	b.call("Page.enable", fields{}, nil)
	b.call("Page.navigate", fields{"url": url}, nil)
}

// eval returns the value of an expression as text.
func (b *browser) eval(expression string) string {
	b.Helper()
	var r struct {
		Result struct{ Value any }
		Exc    any `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", fields{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exc != nil {
		b.Fatalf("%s: %v", expression, r.Exc)
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits until an expression is true.
func (b *browser) until(what, expression string) {
	b.Helper()
	for end := time.Now().Add(patience); b.eval(expression) != "true"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("the page does not show %s; it shows\n%s\nand complains\n%s", what, b.eval("document.body.innerText"), b.complaints())
		}
	}
}

// look sets the size and the colours, and writes a screenshot to the directory $SCREENSHOTS if it is set.
func (b *browser) look(name string, width int, scheme string) {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", fields{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", fields{"features": []fields{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	if wide := b.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth"); wide != "false" {
		b.Errorf("%s: the page is wider than its window of %d", name, width)
	}
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", fields{"captureBeyondViewport": true}, &shot)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.Error(err)
	}
}

func (b *browser) background() string {
	b.Helper()
	return b.eval("getComputedStyle(document.body).backgroundColor")
}

func (b *browser) complaints() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.problems, "\n")
}

func TestPageShowsReloadFailureAndCrash(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	const table = "]\nworkers = 3\n"
	m := start(t, onHTTP, table)
	b := browse(t, m.http+"/")
	b.until("that the program is up", `document.querySelector('[data-program=web]')?.dataset.state === "up" && document.querySelectorAll("[data-role=serving] .workers .ready").length === 3`)
	b.until("that it is live", `document.getElementById("link").dataset.link === "live"`)
	if got := b.eval(`document.querySelectorAll("#unlock:not([hidden]), [data-program] header button").length`); got != "0" {
		t.Errorf("%s buttons without a token", got)
	}
	at := m.address()
	letGo := hold(t, at)
	eventually(t, "the request has been accepted", func() bool { return ss(at) != "" })
	m.signal(syscall.SIGHUP)
	b.until("the draining generation", `document.querySelector('[data-generation="1"]')?.dataset.role === "draining"`)
	b.until("the connection that it still has", `document.querySelectorAll(".timeline .curve").length === 1`)
	b.until("that connection, and memory, at the worker that has it", `/ % · [0-9.]+ MiB · 1 conns$/.test(document.querySelector("[data-role=draining] .workers small")?.textContent)`)
	b.look("reload-wide", 1280, "light")
	light := b.background()
	letGo()
	b.until("the receipt", `document.querySelector('[data-receipt="2"]')?.dataset.outcome === "serves"`)
	b.until("the overlap and the bars", `document.querySelectorAll(".timeline .overlap").length === 1 && document.querySelectorAll(".timeline .bar-serving").length === 2`)

	m.configure(onHTTP, `, "-fail"`+table)
	m.signal(syscall.SIGHUP)
	b.until("the failure", `document.querySelector(".problem")?.textContent.includes("Generation 3 failed at start: exited with status 1. Generation 2 still serves.")`)
	b.until("its receipt", `document.querySelector('[data-receipt="3"]')?.dataset.outcome === "worker"`)
	b.look("failed-dark", 1280, "dark")
	if dark := b.background(); dark == light {
		t.Errorf("light and dark are both %s", light)
	}

	pid := b.eval(`document.querySelector("[data-role=serving] li").dataset.pid`)
	m.kill(pid)
	b.until("the crash", `[...document.querySelectorAll('#recent [data-kind="worker died"]')].some(e => e.textContent.includes("killed by SIGKILL"))`)
	b.until("its replacement", fmt.Sprintf(`document.querySelectorAll("[data-role=serving] .workers .ready").length === 3 && !document.querySelector('[data-pid="%s"]')`, pid))
	b.look("crash-narrow", 390, "light")
	b.look("crash-narrow-dark", 390, "dark")
	if c := b.complaints(); c != "" {
		t.Errorf("the browser reports errors:\n%s", c)
	}
}

func TestPageShowsWhatWaits(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	const table = "]\nworkers = 3\nstop = { max_draining = 1 }\n"
	m := start(t, onHTTP, table)
	b := browse(t, m.http+"/")
	b.until("that the program is up", `document.querySelector('[data-program=web]')?.dataset.state === "up"`)
	waits := func(text string) {
		t.Helper()
		b.until("that it waits", fmt.Sprintf(`document.querySelector(".waits")?.textContent.includes(%q)`, text))
	}
	at := m.address()
	letGo := hold(t, at) // so that generation 1 drains
	eventually(t, "the request has been accepted", func() bool { return ss(at) != "" })
	m.ask("reload", "--canary", "1", "--hold")
	waits(`Generation 2 is a canary, and well. It waits for "supervisord promote web" or "supervisord abort web".`)
	b.look("canary", 1280, "light")
	m.signal(syscall.SIGHUP)
	waits(`A reload waits (HUP · by signal HUP): generation 2, a canary, waits to be promoted or aborted.`)
	b.look("canary-narrow", 390, "dark")
	m.ask("promote", "web", "--no-wait")
	waits(`A reload waits (HUP · by signal HUP): 1 generation drains, as many as stop.max_draining allows.`)
	letGo()
	b.until("that nothing waits", `!document.querySelector(".waits") && document.querySelector('[data-program=web]').dataset.state === "up"`)
}

func TestPageShowsLanes(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	const table = "]\nworkers = 2\nreload = { keep = \"1m\" }\n"
	m := start(t, onHTTP, table)
	b := browse(t, m.http+"/")
	b.until("that the program is up", `document.querySelector('[data-program=web]')?.dataset.state === "up"`)
	text := func(what, selector, text string) {
		t.Helper()
		b.until(what, fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, selector, text))
	}
	m.ask("reload", "--canary", "5%", "--hold")
	text("the canary's share", `[data-generation="2"] .share`, "5 % of new connections")
	text("the share of the other", `[data-generation="1"] .share`, "95 % of new connections")
	text("both at the listener", "[data-listener] .lanes", "generation 1: 95 % · generation 2: 5 %")
	b.look("share", 1280, "light")
	b.look("share-narrow", 390, "dark")
	m.ask("promote", "web", "--no-wait")
	text("that the old generation is kept", ".waits", `Generation 1 is kept`)
	if got := b.eval(`inHand({queued: 1, handshakes: 0, unread: 2, answering: 3, idle: 4})`); got != "1 not accepted, 2 unread, 3 being answered, 4 idle" {
		t.Errorf("what is in hand is shown as %q", got)
	}
	m.ask("rollback", "web")
	b.until("that it was rolled back", `document.querySelector('[data-receipt="2"]')?.textContent.includes("rolled back")`)
	m.ask("pause", "web", "--for", "1m")
	text("the pause", ".waits", "Paused for")
	m.ask("resume", "web")
	b.until("that nothing waits", `!document.querySelector(".waits")`)
	if c := b.complaints(); c != "" {
		t.Errorf("the browser reports errors:\n%s", c)
	}
}

func TestPageButtons(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	const token = "correct-horse-battery"
	if err := os.WriteFile(secret, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	m := start(t, onHTTP+fmt.Sprintf("\nhttp_token_file = %q", secret), "]")
	b := browse(t, m.http+"/")
	b.until("that it can be unlocked", `document.getElementById("unlock")?.hidden === false && document.querySelector('[data-program=web]')?.dataset.state === "up"`)
	unlock := func(token string) {
		b.eval(`document.getElementById("unlock").click()`)
		b.eval(fmt.Sprintf(`document.getElementById("token").value = %q; document.querySelector("dialog button.main").click()`, token))
		b.until("the button", `document.querySelector("[data-program=web] header button")?.textContent === "Reload"`)
		b.eval(`document.querySelector("[data-program=web] header button").click()`)
	}
	unlock("wrong")
	b.until("the refusal", `document.getElementById("said").textContent === "wrong token" && !document.getElementById("unlock").hidden`)
	unlock(token)
	b.until("the answer", `document.getElementById("said").textContent === "Reload begins: web generation 2"`)
	b.until("the new generation", `document.querySelector('[data-receipt="2"]')?.dataset.outcome === "serves"`)
	if r := m.state().Details["web"].Receipts[0]; r.Reason != "the page" {
		t.Errorf("the reason is %q", r.Reason)
	}
}
