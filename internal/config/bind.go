package config

import (
	"net/netip"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/bind"
)

// readBinding reads the key bind, which other programs have for an address.
func readBinding(v document.Value, into *Binding) {
	text, _ := v.Raw.(string)
	if _, err := socket.ParseAddress(text); err == nil {
		v.Problem("is not an address here", "write listen = [%q]", text)
		return
	}
	document.Choice(v, into, BindAuto, BindOn, BindOff)
}

// bindFits reports what does not go with the program's own way to open its ports.
func bindFits(v document.Value, p *Program) {
	at := v.Child("bind")
	if p.Bind == BindOn && len(p.Listen) == 0 {
		at.Problem("does nothing without a listener", "write listen = [\"127.0.0.1:8080\"], the address that the program binds")
	} else if p.Bind == BindOn {
		if err := bind.Try(); err != nil {
			at.Problem("cannot be on here: "+err.Error(), "write \"auto\", or \"off\" and let the program use the inherited socket")
		}
	}
	items, _ := v.Child("listen").Elements()
	for i, l := range p.Listen {
		if l.Binds.String() == "" {
			continue
		}
		at := items[i].Child("binds")
		_, err := netip.ParseAddr(l.Binds.Host)
		switch {
		case p.Bind == BindOff:
			at.Problem("does nothing with bind = \"off\"", "remove it, or write bind = \"auto\"")
		case l.Binds.IsUnix() != l.Address.IsUnix() || l.Binds.IsUDP() != l.Address.IsUDP():
			at.Problem("is of another kind than the address", "write both as TCP, both with udp:, or both with unix:")
		case l.Binds == l.Address && l.Binds.IsUnix():
			at.Problem("is the path of the listener itself, which the program would remove", "write a path of the program's own")
		case !l.Binds.IsUnix() && l.Binds.Port == 0:
			at.Problem("has no port", "write the port that the program binds")
		case !l.Binds.IsUnix() && err != nil && l.Binds.Host != "" && !strings.EqualFold(l.Binds.Host, "localhost"):
			at.Problem("has the name of a host", "write the IP address that the program binds")
		}
	}
}
