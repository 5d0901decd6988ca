package convert

import (
	"fmt"
	"strings"
)

// listeners gives the program the sockets that its command names, or all if it names none.
func (w *watcher) listeners() {
	stdin := strings.ToLower(w.given["stdin_socket"].value)
	uses := w.isOn("use_sockets")
	if !uses && stdin == "" {
		return
	}
	command := strings.ToLower(w.given["cmd"].value + " " + w.given["args"].value)
	var named, all []*section
	for _, s := range w.file.sections {
		name, ok := strings.CutPrefix(strings.ToLower(s.name), "socket:")
		if ok && uses {
			all = append(all, s)
		}
		if ok && (strings.Contains(command, "circus.sockets."+name+")") || name == stdin) {
			named = append(named, s)
		}
	}
	needed := len(named) > 0
	if !needed {
		named = all
	}
	for _, s := range named {
		if !w.socket(s, stdin) && needed {
			w.off = true // it cannot run without
		}
	}
	if stdin != "" && !w.sockets[stdin] {
		w.lacks(w.given["stdin_socket"], "there is no such socket")
	}
}

// socket converts a [socket:x] to a listener of the program; false: it cannot be one.
func (w *watcher) socket(s *section, stdin string) bool {
	name := strings.ToLower(strings.TrimPrefix(s.name, "socket:"))
	w.file.used[name] = true
	address, ok := w.address(s)
	if !ok {
		return false
	}
	w.pending = append(w.pending, s.comments...)
	t := w.listener(s.setting, validName(name), address)
	if t == nil {
		return false
	}
	w.sockets[name] = true
	if name == stdin {
		w.set("stdin", "socket:"+validName(name))
	}
	w.tables["listen"] = t // the rules set its keys
	delete(w.given, "blocking")
	w.each(s, w.socketRules(address), none(unknownToo))
	if !w.isOn("blocking") {
		t.set("nonblock", true) // as circus passes its sockets on
	}
	delete(w.tables, "listen")
	return true
}

// socketRules are the keys of a [socket:x] at an address.
func (w *watcher) socketRules(address string) rules {
	unix, udp := strings.HasPrefix(address, "unix:"), strings.HasPrefix(address, "udp:")
	perSlot, family := always("listen.per_slot", true), kept
	switch {
	case unix:
		perSlot = none("per_slot is not for a unix socket")
	case w.value("restart.when") == `"never"`:
		perSlot = none("per_slot needs workers that are always restarted: nobody would answer the connections of one that is not")
	}
	if strings.Contains(address, "[") && !unix {
		family = when(is("AF_INET6"), always("listen.ipv6_only", false), kept)
	}
	return keys(rules{
		"host port path type blocking": kept,
		"family":                       family,
		"so_reuseport":                 whether(perSlot, kept),
		"replace":                      unneeded("supervisord replaces a stale socket, and no other file"),
		"proto":                        none("supervisord has TCP, UDP and unix sockets"),
		"interface": to("listen.interface", func(p *program, _ string, s setting) (any, bool) {
			const longest = 15 // IFNAMSIZ less the NUL, netdevice(7)
			ok := !unix && s.value != "" && len(s.value) <= longest && !strings.ContainsAny(s.value, " /")
			return s.value, p.unless(!ok, s, "interface is the name of a network interface, and not for a unix socket")
		}),
		"umask": to("listen.mode", func(p *program, _ string, s setting) (any, bool) {
			mask, ok := p.mode(s)
			return fmt.Sprintf("%04o", 0o777&^mask), ok && p.unless(!unix || mask == 0o777, s, "mode is for a unix socket, and must let someone connect")
		}),
		"backlog": to("listen.backlog", func(p *program, _ string, s setting) (any, bool) {
			n, ok := p.integer(s)
			return n, ok && p.unless(n < 1 || udp, s, "a backlog is at least 1, and not for UDP")
		}),
	})
}

// unless reports whether a value is possible, and comments the setting if it is not.
func (p *program) unless(impossible bool, s setting, why string) bool {
	if impossible {
		p.lacks(s, why)
	}
	return !impossible
}

// address returns where a [socket:x] listens.
func (w *watcher) address(s *section) (string, bool) {
	get := func(key, otherwise string) string {
		if s, ok := s.get(key); ok {
			if s, ok = w.filled(s); ok {
				return strings.TrimSpace(s.value)
			}
		}
		return otherwise
	}
	kind, path := strings.ToUpper(get("type", "SOCK_STREAM")), get("path", "")
	if kind != "SOCK_STREAM" && (kind != "SOCK_DGRAM" || path != "") {
		w.lacks(s.setting, "supervisord has TCP, UDP and unix stream sockets, not "+kind)
		return "", false
	}
	if path != "" || strings.EqualFold(get("family", "AF_INET"), "AF_UNIX") {
		return "unix:" + w.path(path), true
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
