package observe

import (
	"fmt"
	"testing"

	"example.org/supervisord/internal/lab/browser"
)

func TestPageShowsReloadFailureAndCrash(t *testing.T) {
	const table = "]\nworkers = 3\n"
	m := start(t, onHTTP, table)
	b := browser.Open(t, m.http+"/")
	b.Until("that the program is up",
		`document.querySelector('[data-program=web]')?.dataset.state === "up" && `+
			`document.querySelectorAll("[data-role=serving] .workers .ready").length === 3`)
	b.Until("that it is live", `document.getElementById("link").dataset.link === "live"`)
	const buttons = `document.querySelectorAll("#unlock:not([hidden]), [data-program] header button").length`
	if got := b.Eval(buttons); got != "0" {
		t.Errorf("%s buttons without a token", got)
	}
	letGo := hold(t, m.address())
	m.Reload()
	b.Until("the draining generation", `document.querySelector('[data-generation="1"]')?.dataset.role === "draining"`)
	b.Until("that connection, and memory, at the worker that has it",
		`/ % · [0-9.]+ MiB · 1 connection$/.test(`+
			`document.querySelector("[data-role=draining] .workers small")?.textContent)`)
	b.Look(1280, "light")
	light := b.Eval("getComputedStyle(document.body).backgroundColor")
	letGo()
	b.Until("the receipt", `document.querySelector('[data-receipt="2"]')?.dataset.outcome === "serves"`)
	b.Until("the overlap and the bars",
		`document.querySelectorAll(".timeline .overlap").length === 1 && document.querySelectorAll(".timeline `+
			`.bar-serving").length === 2`)

	m.Write(configuration(onHTTP, `, "-fail"`+table))
	m.Reload()
	b.Until("the failure", `document.querySelector("[data-note=failure]")?.textContent.includes("Generation 3 failed `+
		`at start: exited with status 1. Generation 2 still serves.")`)
	b.Until("its receipt", `document.querySelector('[data-receipt="3"]')?.dataset.outcome === "worker"`)
	b.Until("that it does not look well",
		`document.querySelector(".badge").textContent === "deploy failed" && document.title.startsWith("(1) ") && `+
			`document.getElementById("icon").href.endsWith("/icon-bad.svg")`)
	b.Look(1280, "dark")
	if dark := b.Eval("getComputedStyle(document.body).backgroundColor"); dark == light {
		t.Errorf("light and dark are both %s", light)
	}

	pid := b.Eval(`document.querySelector("[data-role=serving] li").dataset.pid`)
	m.kill(pid)
	b.Until("the crash", `[...document.querySelectorAll('#recent [data-id=worker_died]')].some(e => `+
		`e.textContent.includes("killed by SIGKILL"))`)
	b.Until("its replacement", fmt.Sprintf(
		`document.querySelectorAll("[data-role=serving] .workers .ready").length === 3 && `+
			`!document.querySelector('[data-pid="%s"]')`, pid))
	b.Look(390, "light")
	b.Look(390, "dark")
	if c := b.Complaints(); c != "" {
		t.Errorf("the browser reports errors:\n%s", c)
	}
}

func TestPageShowsWhatWaits(t *testing.T) {
	const table = "]\nworkers = 3\nreload = { max_draining = 1 }\n"
	m := start(t, onHTTP, table)
	b := m.browse(t)
	waits := func(note, text string) {
		t.Helper()
		b.Until("that it waits", fmt.Sprintf(`document.querySelector("[data-note=%s]")?.textContent.includes(%q)`, note,
			text))
	}
	letGo := hold(t, m.address()) // so that generation 1 drains
	m.CtlOK("reload", "--canary", "1", "--hold")
	waits("canary", `Generation 2 is a canary, and well. It has 25 % of the new connections; generation 1 has the `+
		`rest. Promote it, or abort it.On the server: supervisord promote web or supervisord abort web`)
	b.Until("that a decision is due",
		`document.querySelector(".badge").textContent === "canary held" && document.title.startsWith("(1) ")`)
	b.Look(1280, "light")
	m.Reload()
	waits("due", `A reload waits (HUP · by signal HUP from `)
	waits("due", `): generation 2, a canary, waits to be promoted or aborted.`)
	b.Look(390, "dark")
	m.CtlOK("promote", "web", "--no-wait")
	waits("due", `): 1 generation drains, as many as reload.max_draining allows.`)
	letGo()
	b.Until("that nothing waits", `!document.querySelector("[data-note]") && `+
		`document.querySelector('[data-program=web]').dataset.state === "up"`)
}

// browse opens the page of a master whose program is up.
func (m *master) browse(t *testing.T) *browser.Page {
	t.Helper()
	b := browser.Open(t, m.http+"/")
	b.Until("that the program is up", `document.querySelector('[data-program=web]')?.dataset.state === "up"`)
	return b
}

// Where bind is off, the page says what to do about a server that opens a port of its own: another one, or the
// listener's.
func TestPageSaysTheWaysOutOfAServerThatOpensItsOwnPort(t *testing.T) {
	m := start(t, onHTTP, "]\n")
	b := m.browse(t)
	for _, c := range []struct{ address, at, says string }{
		{m.address(), "[data-note=failure]",
			"exited with status 1; if that is because supervisord holds the port that it opens: "},
		{"127.0.0.1:0", `[data-generation="3"] .workers`, "with a socket of its own: "},
	} {
		m.Write(configuration(onHTTP, fmt.Sprintf(", \"-address\", %q]\nbind = \"off\"\ndialect = []\n", c.address)))
		m.Reload()
		want := c.says + `write bind = "auto" or "on" in place of "off", or let it use the inherited socket`
		b.Until("the ways out", fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, c.at, want))
	}
}

func TestPageShowsLanes(t *testing.T) {
	const table = "]\nworkers = 2\nreload = { keep = \"1m\" }\n"
	m := start(t, onHTTP, table)
	b := m.browse(t)
	text := func(what, selector, text string) {
		t.Helper()
		b.Until(what, fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, selector, text))
	}
	m.CtlOK("reload", "--canary", "5%", "--hold")
	text("the canary's share", `[data-generation="2"] .share`, "5 % of new connections")
	text("the share of the other", `[data-generation="1"] .share`, "95 % of new connections")
	text("both at the listener", "[data-listener] .lanes", "generation 1: 95 % · generation 2: 5 %")
	b.Look(1280, "light")
	b.Look(390, "dark")
	m.CtlOK("promote", "web", "--no-wait")
	text("that the old generation is kept", "[data-note=kept]", `Generation 1 is kept`)
	if got := b.Eval(`import("./program.js").then(m => m.inHand({queued: 1, handshakes: 0, unread: 2, answering: 3, ` +
		`idle: 4}))`); got != "1 not accepted, 2 unread, 3 being answered, 4 idle" {
		t.Errorf("what is in hand is shown as %q", got)
	}
	m.CtlOK("rollback", "web")
	b.Until("that it was rolled back", `document.querySelector('[data-receipt="2"]')?.textContent.includes("rolled back")`)
	m.CtlOK("pause", "web", "--for", "1m")
	text("the pause", "[data-note=paused]", "Paused for")
	m.CtlOK("resume", "web")
	b.Until("that nothing waits", `!document.querySelector("[data-note=paused]")`)
	if c := b.Complaints(); c != "" {
		t.Errorf("the browser reports errors:\n%s", c)
	}
}
