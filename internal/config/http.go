package config

import (
	"fmt"
	"strings"

	"example.org/supervisord/socket"
)

// http reads where the metrics and the page are served: "host:port" or "unix:/path". "" and "off" mean nowhere.
func (v value) http(into *socket.Address) {
	if v.raw == "" || v.raw == "off" {
		return
	}
	var a socket.Address
	switch {
	case !v.address(&a):
		return
	case a.IsUDP(), a.IsUnix() && !a.OnDisk():
		v.problem(fmt.Sprintf("%q cannot be listened on", a), `write such as "127.0.0.1:9001" or "unix:/run/supervisord/http.sock"`)
		return
	case !a.IsLoopback():
		v.warn("can be reached from other machines", `everybody there can read the state of all programs: write "127.0.0.1:%d", or keep others out`, a.Port())
	}
	*into = a
}

// hosts reads names of hosts, without ports.
func (v value) hosts(into *[]string) {
	var names []string
	if !v.texts(&names) {
		return
	}
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, ":/*@ ") || strings.ContainsFunc(name, notPrintable) {
			v.problem(fmt.Sprintf("%q is not the name of a host", name), `write such as "supervisord.example.net": no port, no scheme, no wildcard`)
			return
		}
		names[i] = strings.ToLower(strings.TrimSuffix(name, "."))
	}
	*into = names
}

// httpKeys reports what stands in [supervisor] and does nothing.
func (v value) httpKeys(s *Supervisor) {
	for _, key := range []string{"http_token_file", "http_hosts"} {
		if v.has(key) && s.HTTP == (socket.Address{}) && !v.has("http") {
			v.child(key).problem("does nothing without http", `remove it, or write http = "127.0.0.1:9001"`)
		}
	}
}
