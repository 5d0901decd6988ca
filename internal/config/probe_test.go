package config

import "testing"

func TestProbesMayGoToUnixSockets(t *testing.T) {
	const url, address = "unix:/run/web.{slot}.sock:/health", "unix:/run/web.{slot}.{generation}.sock"
	p := load(t, web+"[program.web.ready]\nmethod = \"http\"\nurl = \""+url+
		"\"\n[program.web.health]\nmethod = \"tcp\"\naddress = \""+address+"\"").Programs[0]
	if p.Ready.URL != url || p.Health.Address != address {
		t.Errorf("they are read as %q and %q", p.Ready.URL, p.Health.Address)
	}
}
