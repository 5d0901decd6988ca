package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket/dialect"
)

// readDialects reads the key dialect: one or several of the known words; an empty list is none.
func readDialects(v document.Value, into *[]dialect.Name) {
	items, ok := v.Elements()
	if !ok {
		items = []document.Value{v}
	}
	list := make([]dialect.Name, 0, len(items))
	for _, item := range items {
		var word string
		if !item.Text(&word) {
			continue
		}
		switch d := dialect.Name(word); {
		case !slices.Contains(dialect.All(), d):
			unknownDialect(item, word)
		case slices.Contains(list, d):
			item.Problem(strconv.Quote(word)+" is listed twice", "remove one")
		default:
			list = append(list, d)
		}
	}
	*into = list
}

// goneDialects says what to do instead of a dialect that was removed.
var goneDialects = map[string]string{
	"gunicorn": "remove it: gunicorn takes its sockets from LISTEN_FDS",
	"unicorn":  "remove it: unicorn takes its sockets from LISTEN_FDS",
	"einhorn":  "remove it: let the worker take its sockets from LISTEN_FDS, and report READY=1 to NOTIFY_SOCKET",
	"nginx":    `write environment = { NGINX = "{fd:NAME};" } with each listener, and nonblock = true in each, instead`,
	"php-fpm":  `write environment = { FPM_SOCKETS = "HOST:PORT={fd:NAME}" } with each listener instead`,
}

func unknownDialect(v document.Value, word string) {
	if remedy, gone := goneDialects[word]; gone {
		v.Problem(fmt.Sprintf("%q was removed", word), "%s", remedy)
		return
	}
	var known []string
	for _, d := range dialect.All() {
		known = append(known, string(d))
	}
	remedy := "known are " + strings.Join(known, ", ")
	if k, ok := document.Nearest(strings.ToLower(word), known); ok {
		remedy = fmt.Sprintf("did you mean %q?", k)
	}
	v.Problem(fmt.Sprintf("%q is not known", word), "%s", remedy)
}
