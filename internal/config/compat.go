package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
)

// compatFields are the keys of [program.NAME.compat]: what other supervisors do, for programs and scripts that rely on
// it.
var compatFields = document.Fields[Program]{
	"generation": func(p *Program, v document.Value) { document.Choice(v, &p.Restart.Generation, Same, New) },
	"int_signal": func(p *Program, v document.Value) { v.Signal(&p.Stop.IntSignal) },
	"reload_signal": func(p *Program, v document.Value) {
		v.Signal(&p.Stop.ReloadSignal)
	},
	"retry":         func(p *Program, v document.Value) { v.Duration(&p.Reload.Retry, shortestRetry) },
	"starter_names": later, // needs the listeners
	"status_file":   func(p *Program, v document.Value) { v.Path(&p.StatusFile) },
}

// readStarterNames reads the names of listeners in SERVER_STARTER_PORT; the listeners of p are known.
func readStarterNames(v document.Value, p *Program) {
	table, is := v.Raw.(map[string]any)
	if v.Raw != nil && !is {
		v.Problem("is "+document.TypeOf(v.Raw)+", not a table", `write such as starter_names = { http = "8080" }`)
	}
	names := listenerNames(p)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.Child(name)
		at := slices.Index(names, name)
		switch {
		case at < 0 && len(names) == 0:
			item.Problem(fmt.Sprintf("%q names no listener", name), "write [[program.%s.listen]]", p.Name)
		case at < 0:
			item.Problem(fmt.Sprintf("%q names no listener", name), "the listeners are %s", strings.Join(names, ", "))
		case item.Text(&p.Listen[at].StarterName):
			for _, wrong := range p.Listen[at].Check() {
				if wrong.Key == "starter_name" {
					item.Problem(wrong.What, "%s", wrong.Remedy)
				}
			}
		}
	}
}
