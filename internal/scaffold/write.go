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

// Configuration returns a configuration with the program, in TOML. directory is where the program is, as the configuration has to say it;
// "": the folder of the configuration. todo is what has to be done before the program loses no request, as sentences.
func (f Found) Configuration(directory string) (text string, todo []string) {
	argv, listen, workers := f.Command, []servers.Listen{{Name: "http", Address: cmp.Or(servers.ListensAt(f.Command), f.Address, defaultAddress)}}, 0
	server, known := servers.Recognize(argv)
	inherits := known && server.Inherits() && server.Manual == ""
	if inherits {
		adapted := server.Adapt(argv, servers.World{})
		if len(adapted.Listen) > 0 {
			argv, listen, workers = adapted.Argv, adapted.Listen, adapted.Workers
		}
	}
	if f.Build != "" {
		todo = append(todo, "build the program: "+f.Build)
	}
	works := servers.Works(f.Command)
	switch {
	case inherits, works:
	case known && server.Manual != "":
		todo = append(todo, fmt.Sprintf("let the program inherit its socket: %s (%s)", server.Manual, server.Page))
	case known:
		todo = append(todo, "let the program inherit its socket: "+server.Page)
	default:
		todo = append(todo, "make sure that address is where the program listens: it may open that port itself (an ordinary user adds bind = \"on\"), "+
			"or use the socket that it inherits: see docs/servers.md#servers-that-open-their-own-port and docs/worker.md")
	}
	if known && server.Remedy != "" {
		todo = append(todo, server.Name+": "+server.Remedy)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "# Written by `supervisord init`. docs/configuration.md describes every key.\n[program.%s]\n", document.Key("", f.Name))
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = document.Quote(word)
	}
	fmt.Fprintf(&b, "command = [%s]\n", strings.Join(words, ", "))
	if directory != "" {
		fmt.Fprintf(&b, "directory = %s\n", document.Quote(directory))
	}
	if workers > 1 {
		fmt.Fprintf(&b, "workers = %d\n", workers)
	}
	if works {
		b.WriteString(queue(document.Key("", f.Name), servers.Schedules(f.Command)))
	} else if known && server.Inherits() {
		b.WriteString(server.Lines(document.Key("", f.Name), listen))
	} else {
		fmt.Fprintf(&b, "[[program.%s.listen]]\nname = \"http\"\naddress = %q\n", document.Key("", f.Name), listen[0].Address)
	}
	return strings.ReplaceAll(b.String(), "\n[", "\n\n["), todo
}

// queue returns the rest of a program that takes work from a queue: it has no listener, and finishes what it has begun.
func queue(program string, single bool) string {
	reload := ""
	if single {
		reload = "[program." + program + ".reload]\n# Two schedulers at the same time would start each job twice.\nstrategy = \"stop-first\"\n"
	}
	return reload + "[program." + program + ".stop]\n# Longer than the longest job: then KILL ends the worker.\ntimeout = \"60s\"\n"
}
