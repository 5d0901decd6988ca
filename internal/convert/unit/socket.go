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
func ofSocket(f *file, listen []*draft.TOMLTable) draft.Rules {
	each := func(key string, read draft.Reader) draft.Rule {
		return func(p *draft.Block, s source.Setting) {
			value, ok := read(p, key, s)
			for _, t := range listen {
				if ok {
					t.Set(key, value)
				}
			}
		}
	}
	onUnix := func(key string, read draft.Reader) draft.Rule {
		return func(p *draft.Block, s source.Setting) {
			value, ok := read(p, key, s)
			for _, t := range listen {
				if ok && strings.HasPrefix(t.Value("address"), `"unix:/`) {
					t.Set(key, value)
				}
			}
		}
	}
	asText := func(_ *draft.Block, _ string, s source.Setting) (any, bool) { return s.Value, s.Value != "" }
	return draft.Keys(draft.Rules{
		"ListenStream ListenDatagram": draft.Kept,
		"ListenSequentialPacket ListenFIFO ListenSpecial ListenNetlink ListenMessageQueue ListenUSBFunction": draft.None(
			"supervisord opens TCP, UDP and unix stream sockets: let the program open it"),
		"FileDescriptorName": draft.Unneeded("it is the name of the listener"),
		"Service":            draft.Unneeded("the program follows"),
		"Accept": draft.Whether(accepts,
			draft.Unneeded("the program accepts connections itself")),
		"SocketMode":       onUnix("mode", draft.AsMode),
		"SocketUser":       onUnix("user", draft.AsAccount),
		"SocketGroup":      onUnix("group", draft.AsAccount),
		"Backlog":          backlog(listen),
		"BindIPv6Only":     ipv6Only(listen),
		"BindToDevice":     each("socket.interface", asText),
		"ReusePort":        each("socket.reuse_port", draft.AsTruth),
		"DeferAcceptSec":   onTCP(listen, "socket.defer_accept", asSpan(1)),
		"KeepAliveTimeSec": onTCP(listen, "socket.keep_alive", asSpan(1)),
		"KeepAlive": draft.Whether(
			draft.None("socket.keep_alive of the listener is the time after which an idle connection is probed"), draft.Unneeded(
				"it is off")),
		"NoDelay": draft.None("the program sets TCP_NODELAY on its connections"),
		"FreeBind Transparent": draft.None(
			"an address must be there when supervisord opens it: let its unit start after the network"),
		"DirectoryMode RemoveOnStop Symlinks": draft.None(
			"create the directory before, for example with tmpfiles.d(5); supervisord removes the path of a unix socket when " +
				"it closes it"),
		"MaxConnections MaxConnectionsPerSource PollLimitIntervalSec PollLimitBurst TriggerLimitIntervalSec TriggerLimitBurst": draft.None(
			"supervisord accepts no connections, so it limits none"),
		"ExecStartPre ExecStartPost ExecStopPre ExecStopPost": draft.None("supervisord opens a listener without commands"),
	})
}

// accepts is for a socket whose connections systemd accepts.
func accepts(p *draft.Block, s source.Setting) {
	p.Off = true
	p.Lacks(s, "supervisord does not accept connections and start a process for each, as inetd does with nowait: leave "+
		"this one to systemd")
}

func backlog(listen []*draft.TOMLTable) draft.Rule {
	return func(p *draft.Block, s source.Setting) {
		n, err := strconv.ParseUint(strings.TrimSpace(s.Value), 10, 32)
		switch {
		case err != nil:
			p.Wrong(s, fmt.Sprintf("%q is not a number", s.Value), "write a whole number")
		case n == 0 || n > 1<<31-1:
			p.Note("", s, "not needed: the backlog is as long as the kernel allows")
		default:
			for _, t := range listen {
				if !strings.HasPrefix(t.Value("address"), `"udp:`) {
					t.Set("backlog", n)
				}
			}
		}
	}
}

func ipv6Only(listen []*draft.TOMLTable) draft.Rule {
	return func(p *draft.Block, s source.Setting) {
		only, known := map[string]bool{"both": false, "ipv6-only": true}[s.Value]
		if !known {
			p.Lacks(s, "write socket.ipv6_only = true or false")
			return
		}
		for _, t := range listen {
			if a := t.Value("address"); strings.Contains(a, `":`) || strings.Contains(a, "[") {
				t.Set("socket.ipv6_only", only)
			}
		}
	}
}

// onTCP sets a key of the listeners that are neither unix nor datagram sockets.
func onTCP(listen []*draft.TOMLTable, key string, read draft.Reader) draft.Rule {
	return func(p *draft.Block, s source.Setting) {
		value, ok := read(p, key, s)
		for _, t := range listen {
			if a := t.Value("address"); ok && !strings.HasPrefix(a, `"unix:`) && !strings.HasPrefix(a, `"udp:`) {
				t.Set(key, value)
			}
		}
	}
}
