package socket

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"unicode/utf8"
)

// record is a Resolved as it is written down for the supervisor's next image, which then needs no resolver.
type record struct {
	Spec     Spec
	Network  string
	IP       netip.Addr
	Port     uint16
	Path     string
	RawPath  []byte `json:",omitempty"` // Path, where it is not UTF-8
	Dual     bool
	UID, GID int
}

// MarshalJSON writes r down, with what was looked up for it.
func (r Resolved) MarshalJSON() ([]byte, error) {
	w := record{Spec: r.Spec, Network: r.at.network, IP: r.at.ip, Port: r.at.port, Path: r.at.path, Dual: r.at.dual, UID: r.uid, GID: r.gid}
	if !utf8.ValidString(r.at.path) {
		w.RawPath = []byte(r.at.path)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote. It refuses what Resolve could not have made.
func (r *Resolved) UnmarshalJSON(data []byte) error {
	var w record
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if w.RawPath != nil {
		w.Path = string(w.RawPath)
	}
	if err := w.Spec.Check(); err != nil {
		return err
	}
	written, err := parseAddress(w.Spec.Address)
	if err != nil {
		return err
	}
	if written.network != w.Network || written.port != w.Port || w.Network != "unix" && !w.IP.IsValid() || w.Network == "unix" && w.Path == "" {
		return fmt.Errorf("the recorded listener %q does not agree with itself", w.Spec.Address)
	}
	*r = Resolved{Spec: w.Spec, at: address{network: w.Network, ip: w.IP, port: w.Port, path: w.Path, dual: w.Dual}, uid: w.UID, gid: w.GID}
	return nil
}
