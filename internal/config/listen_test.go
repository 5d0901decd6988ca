package config

import (
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/socket"
)

func TestHostsThatTurnOutToBeOneAddressAreRefused(t *testing.T) {
	text := minimal + "[[program.web.listen]]\naddress = \"a.example:80\"\n[program.b]\ncommand = [\"b\"]\n" +
		"[[program.b.listen]]\naddress = \"b.example:80\"\n"
	dir := files(t, map[string]string{"c.toml": text})
	c, err := Load(filepath.Join(dir, "c.toml"))
	if err != nil {
		t.Fatal(err)
	}
	resolved := map[string][]socket.Resolved{}
	for _, p := range c.Programs {
		r := socket.Spec{Program: p.Name, Address: addr("127.0.0.1:80")}.Literal()
		r.Address = p.Listen[0].Address
		resolved[p.Name] = []socket.Resolved{r}
	}
	err = c.Overlaps(resolved)
	want := "program.web.listen[0].address: a.example:80 overlaps b.example:80, the address of program.b.listen[0] (" +
		dir + "/c.toml:"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), dir+"/c.toml:") {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := c.Overlaps(map[string][]socket.Resolved{"web": resolved["web"]}); err != nil {
		t.Error(err)
	}
}
