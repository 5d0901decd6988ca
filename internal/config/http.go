package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// http reads where the metrics and the page are served: "host:port" or "unix:/path". "" and "off" mean nowhere.
func (v value) http(into *string) {
	if v.raw == "" || v.raw == "off" {
		*into = ""
		return
	}
	var s string
	if !v.text(&s) {
		return
	}
	if path, unix := strings.CutPrefix(s, "unix:"); unix {
		if !filepath.IsAbs(path) || len(path) > maxSocketPath {
			v.problem(fmt.Sprintf("%q is no path for a socket", path), `write an absolute path of at most %d bytes, such as "unix:/run/supervisord/http.sock"`, maxSocketPath)
			return
		}
		*into = s
		return
	}
	host, port, err := net.SplitHostPort(s)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strings.ContainsAny(host, "/ ") {
		v.problem(fmt.Sprintf("%q is no address to listen on", s), `write such as "127.0.0.1:9001" or "unix:/run/supervisord/http.sock"`)
		return
	}
	if !Loopback(s) {
		v.warn("can be reached from other machines", `everybody there can read the state of all programs: write "127.0.0.1:%s", or keep others out`, port)
	}
	*into = s
}

// Loopback reports whether an address of http can be reached from this machine only.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if strings.HasPrefix(address, "unix:") || err == nil && host == "localhost" {
		return true
	}
	ip, bad := netip.ParseAddr(host)
	return err == nil && bad == nil && ip.IsLoopback()
}

// hosts reads names of hosts, without ports.
func (v value) hosts(into *[]string) {
	var names []string
	if !v.texts(&names) {
		return
	}
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, ":/*@ ") || strings.ContainsFunc(name, isControl) {
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
		if v.has(key) && s.HTTP == "" && !v.has("http") {
			v.child(key).problem("does nothing without http", `remove it, or write http = "127.0.0.1:9001"`)
		}
	}
}
