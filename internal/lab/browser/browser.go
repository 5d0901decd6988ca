// Package browser drives a headless Chromium in tests.
package browser

import (
	"bufio"
	"bytes"
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
const patience = 2 * time.Minute

// chromium is a headless Chromium, driven over a pipe by the Chrome DevTools protocol: JSON messages, each ended by a
// NUL.
type chromium struct {
	cmd  *exec.Cmd
	dir  string
	out  *os.File
	in   *os.File
	done chan struct{} // closed when nothing more can be read

	mu       sync.Mutex
	id       int
	answers  map[int]chan reply
	problems map[string][]string // errors that pages reported, by session
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// frame is any message from the browser.
type frame struct {
	ID        int
	SessionID string
	Method    string
	Params    json.RawMessage
	reply
}

// shared is the one that all tests of a package use: to start it takes longer than most of them.
var shared struct {
	sync.Mutex
	*chromium
}

// Main runs tests, and ends the browser that they used. It returns the exit status.
func Main(m *testing.M) int {
	defer func() {
		if shared.chromium != nil {
			shared.end()
		}
	}()
	return m.Run()
}

// Start starts the browser, unless it runs. It skips the test if Chromium is not installed.
func Start(t *testing.T) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.chromium != nil {
		return
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	if shared.chromium, err = start(path); err != nil {
		t.Fatal(err)
	}
}

func start(path string) (*chromium, error) {
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, err
	}
	fromUs, toThem, err1 := os.Pipe()
	fromThem, toUs, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+
			dir, "--remote-debugging-pipe", "about:blank")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir) // it is killed, and removes nothing
	cmd.ExtraFiles = []*os.File{fromUs, toUs}     // 3 is read, 4 is written
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	fromUs.Close()
	toUs.Close()
	if err != nil {
		return nil, err
	}
	c := &chromium{cmd: cmd, dir: dir, out: toThem, in: fromThem, done: make(chan struct{}), answers: map[int]chan reply{},
		problems: map[string][]string{}}
	go c.read()
	return c, nil
}

func (c *chromium) end() {
	syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	c.cmd.Wait()
	c.out.Close()
	<-c.done
	c.in.Close()
	for range 50 { // its children write until they have exited
		if os.RemoveAll(c.dir) == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *chromium) read() {
	defer close(c.done)
	in := bufio.NewReader(c.in)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m frame
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		switch {
		case m.ID != 0:
			c.answers[m.ID] <- m.reply
			delete(c.answers, m.ID)
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded" &&
			!bytes.Contains(m.Params, []byte(`"source":"network"`)):
			c.problems[m.SessionID] = append(c.problems[m.SessionID], string(m.Params))
		}
		c.mu.Unlock()
	}
}

// send sends one command and returns where its answer will come.
func (c *chromium) send(session, method string, params any) (<-chan reply, error) {
	answer := make(chan reply, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	command := fields{"id": c.id, "method": method, "params": params}
	if session != "" {
		command["sessionId"] = session
	}
	text, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	c.answers[c.id] = answer
	_, err = c.out.Write(append(text, 0))
	return answer, err
}

// Page is a page in a tab of its own.
type Page struct {
	*testing.T
	*chromium
	session string
}

// Open opens a page until the test ends. It skips the test if Chromium is not installed.
func Open(t *testing.T, url string) *Page {
	t.Helper()
	Start(t)
	p := &Page{T: t, chromium: shared.chromium}
	var target struct{ TargetID string }
	p.call("Target.createTarget", fields{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.call("Target.attachToTarget", fields{"targetId": target.TargetID, "flatten": true}, &attached)
	t.Cleanup(func() {
		p.session = ""
		p.call("Target.closeTarget", fields{"targetId": target.TargetID}, nil)
	})
	p.session = attached.SessionID
	p.call("Runtime.enable", fields{}, nil)
	p.call("Log.enable", fields{}, nil)
	p.call("Page.enable", fields{}, nil)
	p.call("Page.navigate", fields{"url": url}, nil)
	return p
}

// call waits for the answer to one command, and fails the test if it is an error.
func (p *Page) call(method string, params any, into any) {
	p.Helper()
	if err := p.ask(method, params, into); err != nil {
		p.Fatal(err)
	}
}

// ask waits for the answer to one command.
func (p *Page) ask(method string, params any, into any) error {
	answer, err := p.send(p.session, method, params)
	if err != nil {
		return err
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			return fmt.Errorf("%s: %s", method, r.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(r.Result, into)
	case <-time.After(patience):
		return fmt.Errorf("chromium does not answer %s", method)
	}
}

type fields map[string]any

// Eval returns the value of an expression as text.
func (p *Page) Eval(expression string) string {
	p.Helper()
	value, err := p.eval(expression)
	if err != nil {
		p.Fatal(err)
	}
	return value
}

func (p *Page) eval(expression string) (string, error) {
	var r struct {
		Result struct{ Value any }
		Exc    any `json:"exceptionDetails"`
	}
	err := p.ask("Runtime.evaluate", fields{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if err == nil && r.Exc != nil {
		err = fmt.Errorf("%s: %v", expression, r.Exc)
	}
	return fmt.Sprint(r.Result.Value), err
}

// navigated is what Chromium answers when the document that was asked made room for the next one.
const navigated = "Inspected target navigated or closed"

// Until waits until an expression is true, also over a change of the document.
func (p *Page) Until(what, expression string) {
	p.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		value, err := p.eval(expression)
		if err != nil && !strings.Contains(err.Error(), navigated) {
			p.Fatal(err)
		}
		if value == "true" {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("the page does not show %s; it shows\n%s\nand complains\n%s", what, p.Eval("document.body.innerText"),
				p.Complaints())
		}
	}
}

// Look sets the width of the window and the colours, "light" or "dark". It reports a page that is wider than its
// window.
func (p *Page) Look(width int, colours string) {
	p.Helper()
	p.call("Emulation.setDeviceMetricsOverride",
		fields{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	p.call("Emulation.setScrollbarsHidden", fields{"hidden": true}, nil)
	p.call("Emulation.setEmulatedMedia", fields{"features": []fields{{"name": "prefers-color-scheme", "value": colours}}},
		nil)
	if wide := p.Eval("document.documentElement.scrollWidth > document.documentElement.clientWidth"); wide != "false" {
		p.Errorf("the page is wider than its window of %d: %s", width, p.Eval(widest))
	}
}

// widest names the element that reaches furthest to the right.
const widest = `[...document.body.querySelectorAll("*")].map(e => [e.getBoundingClientRect().right, ` +
	`e.outerHTML.slice(0, 200)]).sort((a, b) => b[0] - a[0])[0].join(" ")`

// Picture returns a picture of the whole page, of the format "png" or "webp".
func (p *Page) Picture(format string) []byte {
	p.Helper()
	var size struct{ Width, Height float64 }
	if err := json.Unmarshal([]byte(
		p.Eval(`JSON.stringify({width: innerWidth, height: document.documentElement.scrollHeight})`)), &size); err != nil {
		p.Fatal(err)
	}
	var shot struct{ Data []byte }
	p.call("Page.captureScreenshot", fields{"format": format, "captureBeyondViewport": true,
		"clip": fields{"x": 0, "y": 0, "width": size.Width, "height": size.Height, "scale": 1}}, &shot)
	return shot.Data
}

// keys are the keys that do something without writing a character.
var keys = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowDown": 40}

// Press presses a key: one of keys, or a character. With shift, "Shift+Tab".
func (p *Page) Press(key string) {
	p.Helper()
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
	p.call("Input.dispatchKeyEvent",
		fields{"type": "keyDown", "key": key, "windowsVirtualKeyCode": keys[key], "text": text, "modifiers": modifiers}, nil)
	p.call("Input.dispatchKeyEvent",
		fields{"type": "keyUp", "key": key, "windowsVirtualKeyCode": keys[key], "modifiers": modifiers}, nil)
}

// Complaints returns the errors that the page has reported, without answers such as 401, which it may ask for.
func (p *Page) Complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.problems[p.session], "\n")
}
