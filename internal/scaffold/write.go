package scaffold

import (
	"cmp"
	"fmt"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/servers"
)

// defaultAddress is where a program listens if nobody knows better.
const defaultAddress = "127.0.0.1:8080"

// Configuration returns a configuration with the program, in TOML. directory is where the program is, as the
// configuration has to say it; "": the folder of the configuration. ordinary says that supervisord will run as an
// ordinary user. todo is what has to be done before the program loses no request, as sentences.
func (f Found) Configuration(directory string, ordinary bool) (text string, todo []string) {
	var b strings.Builder
	name := document.Key("", f.Name)
	c := servers.Read(f.Command, f.dir.world())
	fmt.Fprintf(&b, "# Written by `supervisord init`. docs/configuration.md describes every key.\n[program.%s]\n", name)
	words := make([]string, len(c.Argv))
	for i, word := range c.Argv {
		words[i] = document.Quote(word)
	}
	fmt.Fprintf(&b, "command = [%s]\n", strings.Join(words, ", "))
	if directory != "" {
		fmt.Fprintf(&b, "directory = %s\n", document.Quote(directory))
	}
	if f.Build != "" {
		todo = append(todo, "build the program: "+f.Build)
	}
	if servers.Works(f.Command) {
		b.WriteString(queue(name, servers.Schedules(f.Command)))
		return spaced(b.String()), todo
	}
	listen, guess := f.listen(c)
	if guess {
		todo = append(todo, fmt.Sprintf("check the address: nothing says which port the program opens, and %s is a guess",
			listen[0].Address))
	}
	b.WriteString(inPlace(c, ordinary) + listeners(name, listen, guess) + rest(name, c))
	for _, change := range c.Changes {
		todo = append(todo, "know of a change of the command: "+change)
	}
	if c.Server != nil && c.Server.Advice != "" {
		todo = append(todo, fmt.Sprintf("%s: %s (%s)", c.Server.Name, c.Server.Advice, c.Server.Page))
	}
	return spaced(b.String()), todo
}

// inPlace returns what a program needs that opens its ports as always.
func inPlace(c servers.CommandLine, ordinary bool) string {
	var b strings.Builder
	if ordinary {
		b.WriteString("# The program opens its port as always, and gets the socket of its version. As an ordinary user " +
			"supervisord needs this line for it,\n" +
			"# and sudo does not work below the program then.\nbind = \"on\"\n")
	}
	if c.Server != nil && c.Server.Untold != "" {
		fmt.Fprintf(&b, "# %s.\ndialect = []\n", sentence(c.Server.Untold))
	}
	return b.String()
}

// sentence begins a text with a capital letter.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// spaced puts an empty line before each table.
func spaced(text string) string { return strings.ReplaceAll(text, "\n[", "\n\n[") }

// listen returns the program's listeners. Where nobody says a host, only this machine reaches them. guess says that
// nobody knows the port.
func (f Found) listen(c servers.CommandLine) (listen []servers.Listen, guess bool) {
	listen = c.Listen
	if guess = len(listen) == 0; guess {
		known := cmp.Or(f.dir.elsewhere(), f.Address)
		guess = known == ""
		listen = []servers.Listen{{Name: "http", Address: cmp.Or(known, defaultAddress), Any: true}}
	}
	for i, l := range listen {
		if port, found := strings.CutPrefix(l.Address, "0.0.0.0:"); found && l.Any {
			listen[i].Address = "127.0.0.1:" + port
		}
	}
	return listen, guess
}

func listeners(program string, listen []servers.Listen, guess bool) string {
	var b strings.Builder
	for _, l := range listen {
		fmt.Fprintf(&b, "[[program.%s.listen]]\nname = %s\n", program, document.Quote(l.Name))
		switch {
		case guess:
			b.WriteString("# A guess: write the port that the program opens.\n")
		case l.Any:
			b.WriteString("# With 0.0.0.0 instead of 127.0.0.1 other machines reach it.\n")
		}
		fmt.Fprintf(&b, "address = %s\n", document.Quote(l.Address))
		if l.Binds != "" {
			fmt.Fprintf(&b, "binds = %s\n", document.Quote(l.Binds))
		}
	}
	return b.String()
}

// rest returns how a known server says that it is ready, and how it stops.
func rest(program string, c servers.CommandLine) string {
	const patient, margin = 30, 5 // seconds
	var b strings.Builder
	s := c.Server
	if s == nil {
		return ""
	}
	if s.Single != "" {
		fmt.Fprintf(&b, "[program.%s.reload]\n# %s: clients wait meanwhile.\nstrategy = \"stop-first\"\n", program,
			sentence(s.Single))
	}
	fmt.Fprintf(&b, "[program.%s.ready]\nmethod = %q\n[program.%s.stop]\n", program, s.Ready, program)
	if s.Signal != "" && s.Signal != "TERM" {
		fmt.Fprintf(&b, "signal = %q\n", s.Signal)
	}
	if s.Group {
		b.WriteString("# The first process does not pass the signal on.\ngroup = true\n")
	}
	fmt.Fprintf(&b, "timeout = \"%ds\"\n", max(patient, int(c.Stop.Seconds())+margin))
	return b.String()
}

// queue returns the rest of a program that takes work from a queue: it has no listener, and finishes what it has begun.
func queue(program string, single bool) string {
	reload := ""
	if single {
		reload = "[program." + program +
			".reload]\n# Two schedulers at the same time would start each job twice.\nstrategy = \"stop-first\"\n"
	}
	return reload + "[program." + program +
		".stop]\n# Longer than the longest job: then KILL ends the worker.\ntimeout = \"60s\"\n"
}
