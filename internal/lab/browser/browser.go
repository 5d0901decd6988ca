// Package browser drives a headless Chromium in tests.
package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience limits the wait for anything that should be immediate: the machine may be busy.
const patience = 30 * time.Second

// Browser is a headless Chromium with one page, driven over a pipe by the Chrome DevTools protocol: JSON messages, each ended by a NUL.
type Browser struct {
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

// Open opens a page. It skips the test if Chromium is not installed.
func Open(t *testing.T, url string) *Browser {
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
	b := &Browser{T: t, out: toThem, answers: map[int]chan reply{}}
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

func (b *Browser) read(from *os.File) {
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
func (b *Browser) call(method string, params any, into any) {
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

func (b *Browser) open(url string) {
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

// Eval returns the value of an expression as text.
func (b *Browser) Eval(expression string) string {
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

// Until waits until an expression is true.
func (b *Browser) Until(what, expression string) {
	b.Helper()
	for end := time.Now().Add(patience); b.Eval(expression) != "true"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("the page does not show %s; it shows\n%s\nand complains\n%s", what, b.Eval("document.body.innerText"), b.Complaints())
		}
	}
}

// Look sets the width of the window and the colours, "light" or "dark". It reports a page that is wider than its window.
func (b *Browser) Look(width int, colours string) {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", fields{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", fields{"features": []fields{{"name": "prefers-color-scheme", "value": colours}}}, nil)
	if wide := b.Eval("document.documentElement.scrollWidth > document.documentElement.clientWidth"); wide != "false" {
		b.Errorf("the page is wider than its window of %d: %s", width, b.Eval(widest))
	}
}

// widest names the element that reaches furthest to the right.
const widest = `[...document.body.querySelectorAll("*")].map(e => [e.getBoundingClientRect().right, e.outerHTML.slice(0, 200)]).sort((a, b) => b[0] - a[0])[0].join(" ")`

// Picture returns a picture of the whole page, of the format "png" or "webp".
func (b *Browser) Picture(format string) []byte {
	b.Helper()
	var size struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	b.call("Page.getLayoutMetrics", fields{}, &size)
	var shot struct{ Data []byte }
	b.call("Page.captureScreenshot", fields{"format": format, "captureBeyondViewport": true,
		"clip": fields{"x": 0, "y": 0, "width": size.CSSContentSize.Width, "height": size.CSSContentSize.Height, "scale": 1}}, &shot)
	return shot.Data
}

// keys are the keys that do something without writing a character.
var keys = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowDown": 40}

// Press presses a key: one of keys, or a character. With shift, "Shift+Tab".
func (b *Browser) Press(key string) {
	b.Helper()
	key, shifted := strings.CutPrefix(key, "Shift+")
	modifiers := 0
	if shifted {
		modifiers = 8
	}
	text := key
	switch key {
	case "Enter":
		text = "\r"
	case "Tab", "Escape", "ArrowDown":
		text = ""
	}
	b.call("Input.dispatchKeyEvent", fields{"type": "keyDown", "key": key, "windowsVirtualKeyCode": keys[key], "text": text, "modifiers": modifiers}, nil)
	b.call("Input.dispatchKeyEvent", fields{"type": "keyUp", "key": key, "windowsVirtualKeyCode": keys[key], "modifiers": modifiers}, nil)
}

// Complaints returns the errors that the page has reported.
func (b *Browser) Complaints() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.problems, "\n")
}
