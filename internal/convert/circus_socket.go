package convert

import (
	"fmt"
	"strconv"
	"strings"
)

// listeners gives the program the sockets that its command names, or all if it names none.
func (w *watcher) listeners() {
	if !w.useSockets && w.stdin == "" {
		return
	}
	var named, all []*section
	for _, s := range w.file.ini.sections {
		name, ok := strings.CutPrefix(s.name, "socket:")
		if !ok {
			continue
		}
		name = strings.ToLower(name)
		if w.useSockets {
			all = append(all, s)
		}
		if strings.Contains(strings.ToLower(w.cmd.value+" "+w.args.value), "circus.sockets."+name+")") || name == strings.ToLower(w.stdin) {
			named = append(named, s)
		}
	}
	needed := len(named) > 0
	if !needed {
		named = all
	}
	for _, s := range named {
		if !w.listener(s) && needed {
			w.off = true // it cannot be without
		}
	}
	if w.stdin != "" && !w.sockets[strings.ToLower(w.stdin)] {
		w.lacks(item{at: w.section.at, key: "stdin_socket", value: w.stdin}, "there is no such socket")
	}
}

// listener converts a [socket:x]; false: it cannot be.
func (w *watcher) listener(s *section) bool {
	name := strings.ToLower(strings.TrimPrefix(s.name, "socket:"))
	w.file.used[name] = true
	address, ok := w.address(s)
	if !ok {
		return false
	}
	w.comments = append(w.comments, s.comments...)
	t := w.listenTable(s.item, fit(name), address)
	if t == nil {
		return false
	}
	w.sockets[name] = true
	if name == strings.ToLower(w.stdin) {
		w.set("", "stdin", "socket:"+fit(name))
	}
	for _, e := range s.entries {
		convert, known := socketKeys[e.key]
		switch {
		case e.over != nil:
			w.note("", e.item, fmt.Sprintf("does not count: %s has it before", e.over))
		case known:
			convert(w, t, w.filled(e.item))
		default:
			w.lacks(e.item, "circus does not know it either")
		}
	}
	blocking, said := s.get("blocking")
	if on := strings.ToLower(blocking.value); !said || on == "no" || on == "false" || on == "off" || on == "0" {
		t.set("nonblock", true) // as circus hands its sockets over
	}
	return true
}

// socketKeys says what becomes of each key of [socket:x].
var socketKeys = map[string]func(w *watcher, t *table, it item){
	"host": func(*watcher, *table, item) {}, "port": func(*watcher, *table, item) {}, "path": func(*watcher, *table, item) {},
	"type": func(*watcher, *table, item) {}, "blocking": func(*watcher, *table, item) {},
	"family": func(w *watcher, t *table, it item) {
		if strings.EqualFold(it.value, "AF_INET6") && strings.Contains(t.value("address"), "[") {
			t.set("ipv6_only", false)
		}
	},
	"interface": func(w *watcher, t *table, it item) {
		const longest = 15 // IFNAMSIZ less the NUL, netdevice(7)
		if t.unix() || it.value == "" || len(it.value) > longest || strings.ContainsAny(it.value, " /") {
			w.lacks(it, "interface takes the name of a network interface, and not for a unix socket")
			return
		}
		t.set("interface", it.value)
	},
	"umask": func(w *watcher, t *table, it item) {
		mask, ok := w.doc.permissions(it)
		n, _ := strconv.ParseUint(mask, 8, 32)
		switch {
		case !ok:
		case !t.unix() || n == 0o777:
			w.lacks(it, "mode is for a unix socket, and somebody must be able to connect")
		default:
			t.set("mode", fmt.Sprintf("%04o", 0o777&^n))
		}
	},
	"backlog": func(w *watcher, t *table, it item) {
		if n, ok := w.doc.integer(it); ok && n > 0 && !t.udp() {
			t.set("backlog", n)
		} else if ok {
			w.lacks(it, "a backlog is at least 1, and not for udp")
		}
	},
	"so_reuseport": func(w *watcher, t *table, it item) {
		on, ok := w.doc.truth(it)
		switch {
		case ok && on && t.unix():
			w.lacks(it, "per_slot is not for a unix socket")
		case ok && on && w.finishes():
			w.lacks(it, "per_slot needs workers that are always replaced: nobody would answer the connections of one that is not")
		case ok && on:
			t.set("per_slot", true)
		}
	},
	"replace": func(w *watcher, t *table, it item) {
		w.holds(it, "a socket on which nobody listens is replaced, and nothing else is")
	},
	"proto": func(w *watcher, t *table, it item) { w.lacks(it, "there are TCP, UDP and unix sockets") },
}

// finishes reports whether workers that end are not started again.
func (w *watcher) finishes() bool {
	it, said := w.section.get("respawn")
	if !said {
		return false
	}
	on, ok := w.doc.truth(it)
	return ok && !on
}

func (t *table) unix() bool { return strings.HasPrefix(t.value("address"), `"unix:`) }

// address is where a [socket:x] listens.
func (w *watcher) address(s *section) (string, bool) {
	get := func(key, otherwise string) string {
		if it, ok := s.get(key); ok {
			return strings.TrimSpace(w.filled(it).value)
		}
		return otherwise
	}
	kind := strings.ToUpper(get("type", "SOCK_STREAM"))
	path, family := get("path", ""), strings.ToUpper(get("family", "AF_INET"))
	if kind != "SOCK_STREAM" && (kind != "SOCK_DGRAM" || path != "") {
		w.lacks(s.item, kind+" is no kind of listener: there are TCP, UDP and unix stream sockets")
		return "", false
	}
	if path != "" || family == "AF_UNIX" {
		return "unix:" + w.doc.path(path), true
	}
	host := get("host", "localhost")
	if strings.Contains(host, ":") {
		host = "[" + strings.Trim(host, "[]") + "]"
	}
	address := host + ":" + get("port", "8080")
	if kind == "SOCK_DGRAM" {
		address = "udp:" + address
	}
	return address, true
}
