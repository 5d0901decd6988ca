package convert

import (
	"fmt"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
)

// listeners gives the program the sockets that its command names, or all if it names none.
func (w *watcher) listeners() {
	stdin := strings.ToLower(w.Given["stdin_socket"].Value)
	uses := w.IsOn("use_sockets")
	if !uses && stdin == "" {
		return
	}
	command := strings.ToLower(w.Given["cmd"].Value + " " + w.Given["args"].Value)
	var named, all []*source.Section
	for _, s := range w.file.Sections {
		name, ok := strings.CutPrefix(strings.ToLower(s.Name), "socket:")
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
			w.Off = true // it cannot run without
		}
	}
	if stdin != "" && !w.sockets[stdin] {
		w.Lacks(w.Given["stdin_socket"], "there is no such socket")
	}
}

// socket converts a [socket:x] to a listener of the program; false: it cannot be one.
func (w *watcher) socket(s *source.Section, stdin string) bool {
	name := strings.ToLower(strings.TrimPrefix(s.Name, "socket:"))
	w.file.used[name] = true
	address, ok := w.address(s)
	if !ok {
		return false
	}
	w.Pending = append(w.Pending, s.Comments...)
	t := w.Listener(s.Setting, draft.ValidName(name), address)
	if t == nil {
		return false
	}
	w.sockets[name] = true
	if name == stdin {
		w.Set("stdin", "socket:"+draft.ValidName(name))
	}
	w.Tables["listen"] = t // the rules set its keys
	delete(w.Given, "blocking")
	w.Each(s, w.socketRules(address), draft.None(unknownToo))
	if !w.IsOn("blocking") {
		t.Set("nonblock", true) // as circus passes its sockets on
	}
	delete(w.Tables, "listen")
	return true
}

// socketRules are the keys of a [socket:x] at an address.
func (w *watcher) socketRules(address string) draft.Rules {
	unix, udp := strings.HasPrefix(address, "unix:"), strings.HasPrefix(address, "udp:")
	perSlot, family := draft.Always("listen.per_slot", true), draft.Kept
	switch {
	case unix:
		perSlot = draft.None("per_slot is not for a unix socket")
	case w.Value("restart.when") == `"never"`:
		perSlot = draft.None("per_slot needs workers that are always restarted: the connections of one that is not restarted would never be answered")
	}
	if strings.Contains(address, "[") && !unix {
		family = draft.When(draft.Is("AF_INET6"), draft.Always("listen.ipv6_only", false), draft.Kept)
	}
	return draft.Keys(draft.Rules{
		"host port path type blocking": draft.Kept,
		"family":                       family,
		"so_reuseport":                 draft.Whether(perSlot, draft.Kept),
		"replace":                      draft.Unneeded("supervisord replaces a stale socket, and no other file"),
		"proto":                        draft.None("supervisord has TCP, UDP and unix sockets"),
		"interface": draft.To("listen.interface", func(p *draft.Target, _ string, s source.Setting) (any, bool) {
			const longest = 15 // IFNAMSIZ less the NUL, netdevice(7)
			ok := !unix && s.Value != "" && len(s.Value) <= longest && !strings.ContainsAny(s.Value, " /")
			return s.Value, p.Unless(!ok, s, "interface is the name of a network interface, and not for a unix socket")
		}),
		"umask": draft.To("listen.mode", func(p *draft.Target, _ string, s source.Setting) (any, bool) {
			mask, ok := p.Mode(s)
			return fmt.Sprintf("%04o", 0o777&^mask), ok && p.Unless(!unix || mask == 0o777, s, "mode is for a unix socket, and must let someone connect")
		}),
		"backlog": draft.To("listen.backlog", func(p *draft.Target, _ string, s source.Setting) (any, bool) {
			n, ok := p.Integer(s)
			return n, ok && p.Unless(n < 1 || udp, s, "a backlog is at least 1, and not for UDP")
		}),
	})
}

// address returns where a [socket:x] listens.
func (w *watcher) address(s *source.Section) (string, bool) {
	get := func(key, otherwise string) string {
		if s, ok := s.Get(key); ok {
			if s, ok = w.Filled(s); ok {
				return strings.TrimSpace(s.Value)
			}
		}
		return otherwise
	}
	kind, path := strings.ToUpper(get("type", "SOCK_STREAM")), get("path", "")
	if kind != "SOCK_STREAM" && (kind != "SOCK_DGRAM" || path != "") {
		w.Lacks(s.Setting, "supervisord has TCP, UDP and unix stream sockets, not "+kind)
		return "", false
	}
	if path != "" || strings.EqualFold(get("family", "AF_INET"), "AF_UNIX") {
		return "unix:" + w.Path(path), true
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
