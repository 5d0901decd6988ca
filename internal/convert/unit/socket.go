package unit

import (
	"fmt"
	"strconv"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
)

// listeners makes the sockets of a unit listeners of the program.
func (x *service) listeners(f *file) {
	section := f.ByName["Socket"]
	if section == nil {
		x.Wrong(source.Setting{At: source.Location{File: f.path}}, "has no [Socket]", "name a socket, or remove it")
		return
	}
	var listen []*draft.TOMLTable
	for _, s := range section.Counting() {
		if address, ok := x.address(f, s); ok {
			name := f.whole
			if named, ok := section.Get("FileDescriptorName"); ok {
				name = named.Value
			}
			if len(listen) > 0 {
				name += "-" + strconv.Itoa(len(listen)+1)
				x.Note("", s, "renamed to "+name+": a name is unique")
			}
			if t := x.Listener(s, strings.NewReplacer(":", "-", "}", "-").Replace(name), address); t != nil {
				t.AnybodyMayConnect()
				listen = append(listen, t)
			}
		}
	}
	known := ofSocket(f, listen)
	for _, other := range f.Sections {
		switch {
		case f == x.unit && other != section: // converted with the service
		case other == section:
			x.Each(other, known, draft.None("only systemd has it"))
		case other.Name == "Install":
			x.Each(other, draft.Rules{}, draft.Unneeded("supervisord opens every listener when it starts"))
		default:
			x.Each(other, ofUnit(), draft.None("it orders units of systemd"))
		}
	}
}

// address returns the address of a key that names one.
func (x *service) address(f *file, s source.Setting) (string, bool) {
	network := ""
	switch s.Key {
	case "ListenStream":
	case "ListenDatagram":
		network = "udp:"
	default:
		return "", false
	}
	s, ok := f.specifiers(x.Block, s)
	value := s.Value
	switch _, err := strconv.Atoi(value); {
	case !ok || value == "":
		return "", false
	case err == nil:
		return network + ":" + value, true // both IPv4 and IPv6
	case value[0] == '/' || value[0] == '@':
		if network != "" {
			x.Lacks(s, "supervisord opens no unix sockets for datagrams: let the program open it")
			return "", false
		}
		return "unix:" + value, true
	case strings.HasPrefix(value, "vsock:"):
		x.Lacks(s, "supervisord opens no sockets of this kind")
		return "", false
	}
	return network + value, true
}

// ofSocket are the keys of [Socket], which hold for each of its listeners.
func ofSocket(f *file, listen socketTables) draft.Rules {
	return draft.Keys(draft.Notes(keys, "Socket"), draft.Rules{
		"ListenStream ListenDatagram": draft.Kept,
		"Accept":                      draft.Whether(accepts, draft.Unneeded("the program accepts connections itself")),
		"SocketMode":                  listen.at(paths, "mode", draft.AsMode),
		"SocketUser":                  listen.at(paths, "user", draft.AsAccount),
		"SocketGroup":                 listen.at(paths, "group", draft.AsAccount),
		"Backlog":                     listen.at(streams, "backlog", asBacklog),
		"BindIPv6Only":                listen.at(ipv6, "socket.ipv6_only", asOnly),
		"BindToDevice":                listen.at(all, "socket.interface", asText),
		"ReusePort":                   listen.at(all, "socket.reuse_port", draft.AsTruth),
		"DeferAcceptSec":              listen.at(tcp, "socket.defer_accept", asSpan(1)),
		"KeepAliveTimeSec":            listen.at(tcp, "socket.keep_alive", asSpan(1)),
		"KeepAlive": draft.Whether(
			draft.None("socket.keep_alive of the listener is the time after which an idle connection is probed"),
			draft.Unneeded("it is off")),
	})
}

// socketTables are the listeners of a socket unit.
type socketTables []*draft.TOMLTable

// Which listeners a key is for, by their addresses in TOML.
func all(string) bool             { return true }
func paths(address string) bool   { return strings.HasPrefix(address, `"unix:/`) }
func streams(address string) bool { return !strings.HasPrefix(address, `"udp:`) }
func tcp(address string) bool     { return streams(address) && !strings.HasPrefix(address, `"unix:`) }
func ipv6(address string) bool {
	return strings.HasPrefix(address, `":`) || strings.Contains(address, "[")
}

// at converts a key to one of the listeners that it is for.
func (l socketTables) at(which func(address string) bool, key string, read draft.Reader) draft.Rule {
	return func(p *draft.Block, s source.Setting) {
		value, ok := read(p, key, s)
		for _, t := range l {
			if ok && which(t.Value("address")) {
				t.Set(key, value)
			}
		}
	}
}

func asText(_ *draft.Block, _ string, s source.Setting) (any, bool) { return s.Value, s.Value != "" }

func asBacklog(p *draft.Block, _ string, s source.Setting) (any, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(s.Value), 10, 32)
	switch {
	case err != nil:
		p.Wrong(s, fmt.Sprintf("%q is not a number", s.Value), "write a whole number")
	case n == 0 || n > 1<<31-1:
		p.Note("", s, "not needed: the backlog is as long as the kernel allows")
	default:
		return n, true
	}
	return nil, false
}

func asOnly(p *draft.Block, _ string, s source.Setting) (any, bool) {
	only, known := map[string]bool{"both": false, "ipv6-only": true}[s.Value]
	if !known {
		p.Lacks(s, "write socket.ipv6_only = true or false")
	}
	return only, known
}

// accepts is for a socket whose connections systemd accepts.
func accepts(p *draft.Block, s source.Setting) {
	p.Off = true
	p.Lacks(s, "supervisord does not accept connections and start a process for each, as inetd does with nowait: leave "+
		"this one to systemd")
}
