package config

import (
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/config/reach"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/ready"
)

func TestProbeOfAListenerThatIsOpenIsRefused(t *testing.T) {
	c := &Config{Programs: []Program{{Name: "web", File: "/c.toml", Line: 3,
		Ready: Ready{Check: ready.Check{Method: ready.TCP, Address: "127.0.0.1:43210"}}}}}
	err := c.CheckProbes([]reach.Endpoint{{Program: "web", Name: "http", Address: addr("127.0.0.1:43210")}})
	if err == nil || !strings.HasPrefix(withoutColumns(err),
		`/c.toml:3: program.web.ready.address: reaches the listener "http" at 127.0.0.1:43210`) {
		t.Errorf("got %v", err)
	}
	if err := c.CheckProbes([]reach.Endpoint{{Program: "web", Name: "http", Address: addr("127.0.0.1:43211")},
		{Program: "web", Name: "u", Address: addr("unix:/run/web.sock")}}); err != nil {
		t.Error(err)
	}
}

func TestHostsThatTurnOutToBeOneAddressAreRefused(t *testing.T) {
	text := minimal + "[[program.web.listen]]\naddress = \"a.example:80\"\n[program.b]\ncommand = [\"b\"]\n" +
		"[[program.b.listen]]\naddress = \"b.example:80\"\n"
	dir := must.Files(t, map[string]string{"c.toml": text})
	c := must.Get(Load(filepath.Join(dir, "c.toml")))(t)
	resolved := map[string][]socket.Resolved{}
	for _, p := range c.Programs {
		r := socket.Spec{Program: p.Name, Address: addr("127.0.0.1:80")}.Literal()
		r.Address = p.Listen[0].Address
		resolved[p.Name] = []socket.Resolved{r}
	}
	err := c.Overlaps(resolved)
	want := "program.web.listen[0].address: a.example:80 overlaps b.example:80, the address of program.b.listen[0] (" +
		dir + "/c.toml:"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), dir+"/c.toml:") {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := c.Overlaps(map[string][]socket.Resolved{"web": resolved["web"]}); err != nil {
		t.Error(err)
	}
}
