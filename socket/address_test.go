package socket

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

func TestKeyIsTheKernelsIdeaOfTheAddress(t *testing.T) {
	for address, key := range map[string]string{
		"127.0.0.1:8080":          "tcp 127.0.0.1:8080",
		"[127.0.0.1]:8080":        "tcp 127.0.0.1:8080",
		"[::ffff:127.0.0.1]:8080": "tcp 127.0.0.1:8080",
		"localhost:8080":          "tcp 127.0.0.1:8080",
		"[::1]:8080":              "tcp [::1]:8080",
		"[0:0::1]:08080":          "tcp [::1]:8080",
		"[fe80::1%lo]:80":         "tcp [fe80::1%lo]:80",
		":8080":                   "tcp [::]:8080",
		"[::]:8080":               "tcp [::]:8080",
		"0.0.0.0:8080":            "tcp 0.0.0.0:8080",
		"udp:127.0.0.1:53":        "udp 127.0.0.1:53",
		"udp:[::1]:53":            "udp [::1]:53",
		"udp::53":                 "udp [::]:53",
		"unix:/run/../run//x":     "unix /run/x",
		"unix:@abstract":          "unix @abstract",
		"127.0.0.1:0":             "tcp 127.0.0.1:0 /web",
	} {
		r := resolved(t, Spec{Name: "web", Address: addr(address)})
		if r.Key() != key {
			t.Errorf("%q has key %q, not %q", address, r.Key(), key)
		}
	}
	r := resolved(t, Spec{Address: addr("127.0.0.1:80"), Sockopts: Sockopts{Interface: "lo"}})
	if r.Key() != "tcp 127.0.0.1:80 on lo" {
		t.Errorf("key is %q", r.Key())
	}
}

func TestMalformedAddressHasARemedy(t *testing.T) {
	for address, remedy := range map[string]string{
		"":                                  `write "127.0.0.1:8080"`,
		"8080":                              `write ":8080" for every interface`,
		"udp:53":                            `write ":53"`,
		"localhost":                         `"localhost:8080"`,
		"::1:8080":                          "in brackets",
		"[::1]":                             "in brackets",
		"127.0.0.1:http":                    "a port is 0 to 65535",
		"127.0.0.1:65536":                   "is too large: a port is 0 to 65535",
		"127.0.0.1:-1":                      "a port is 0 to 65535",
		"127.0.0.1:":                        "a port is 0 to 65535",
		"/run/web.sock":                     `"unix:/run/web.sock"`,
		"@web":                              `"unix:@web"`,
		"unix:":                             "unix:/run/web.sock",
		"unix:@":                            "unix:@name",
		"unix:web.sock":                     "from /",
		"unix:/run/":                        "name the socket in it",
		"unix:/a;b":                         "leave out",
		"unix:/a=b":                         "leave out",
		"unix:@a\nb":                        "leave out",
		"unix:/" + strings.Repeat("x", 107): "can have 107",
		"unix:@" + strings.Repeat("x", 108): "can have 107",
		"a b:80":                            "a name has letters",
		"a;b:80":                            "a name has letters",
		"a=b:80":                            "a name has letters",
		"300.0.0.1:80":                      "four numbers",
		"127.0.0.01:80":                     "four numbers",
		"[fe80::1%a=b]:80":                  "fe80::1%eth0",
	} {
		_, err := ParseAddress(address)
		var wrong *SpecError
		if !errors.As(err, &wrong) || wrong.Key != "address" || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%q: %v, which does not say %q", address, err, remedy)
		}
	}
	for _, longest := range []string{"unix:/" + strings.Repeat("x", 106), "unix:@" + strings.Repeat("x", 107)} {
		_ = must.Get(ParseAddress(longest))(t)
	}
}

func TestMeaninglessOptionIsRefused(t *testing.T) {
	tcp, udp, path, abstract := "127.0.0.1:80", "udp:127.0.0.1:53", "unix:/run/x", "unix:@x"
	for _, c := range []struct {
		key  string
		spec Spec
	}{
		{"backlog", Spec{Address: addr(udp), Backlog: 1}},
		{"mode", Spec{Address: addr(tcp), Access: Access{Mode: 0o600}}},
		{"mode", Spec{Address: addr(abstract), Access: Access{Mode: 0o600}}},
		{"user", Spec{Address: addr(abstract), Access: Access{User: "root"}}},
		{"group", Spec{Address: addr(tcp), Access: Access{Group: "root"}}},
		{"reuse_port", Spec{Address: addr(path), Sockopts: Sockopts{ReusePort: true}}},
		{"reuse_port", Spec{Address: addr(tcp), Sockopts: Sockopts{ReusePort: true}, PerSlot: true}},
		{"per_slot", Spec{Address: addr(path), PerSlot: true}},
		{"interface", Spec{Address: addr(path), Sockopts: Sockopts{Interface: "lo"}}},
		{"interface", Spec{Address: addr(tcp), Sockopts: Sockopts{Interface: "no such interface"}}},
		{"ipv6_only", Spec{Address: addr(path), Sockopts: Sockopts{IPv6Only: "true"}}},
		{"ipv6_only", Spec{Address: addr(tcp), Sockopts: Sockopts{IPv6Only: "true"}}},
		{"defer_accept", Spec{Address: addr(udp), Sockopts: Sockopts{DeferAccept: time.Second}}},
		{"fast_open", Spec{Address: addr(path), Sockopts: Sockopts{FastOpen: 1}}},
		{"keep_alive", Spec{Address: addr(udp), Sockopts: Sockopts{KeepAlive: time.Second}}},
		{"user", Spec{Address: addr(path), Access: Access{User: "nobody of that name"}}},
		{"user", Spec{Address: addr(path), Access: Access{User: "4294967295"}}},
		{"group", Spec{Address: addr(path), Access: Access{Group: "nobody of that name"}}},
		{"group", Spec{Address: addr(path), Access: Access{Group: "4294967295"}}},
	} {
		var err error
		if problems := c.spec.Check(); len(problems) > 0 {
			err = problems[0]
		} else {
			_, err = c.spec.Resolve(context.Background())
		}
		var wrong *SpecError
		if !errors.As(err, &wrong) || wrong.Key != c.key || wrong.Remedy == "" {
			t.Errorf("%+v: %v, which is not about %s", c.spec, err, c.key)
		}
	}
}

func TestUnknownHostCanBeTriedAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Spec{Address: addr("unknown.invalid:80")}.Resolve(ctx)
	var wrong *SpecError
	if err == nil || errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
}

func TestOwnerIsANameOrANumber(t *testing.T) {
	byName := resolved(t, Spec{Address: addr("unix:/run/x"), Access: Access{User: "root", Group: "root"}})
	byNumber := resolved(t, Spec{Address: addr("unix:/run/x"), Access: Access{User: "0", Group: "0"}})
	if byName.uid != byNumber.uid || byName.gid != byNumber.gid || byName.uid != 0 || byName.gid != 0 {
		t.Errorf("root is %d:%d and 0 is %d:%d", byName.uid, byName.gid, byNumber.uid, byNumber.gid)
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"127.0.0.1:80", "[::1]:80", ":80", "8080", "unix:/a", "unix:@a", "udp::53",
		"[fe80::1%lo]:1", "a=b:1", "unix:/a;b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := ParseAddress(s)
		if err != nil {
			return
		}
		name := w.StarterName()
		if name == "" || strings.ContainsAny(name, ";=\x00\n") {
			t.Errorf("%q has the name %q", s, name)
		}
		if len(s) > 5 && s[:5] != "unix:" && strings.Trim(w.Host, "0123456789.:[]") == "" {
			r := resolved(t, Spec{Name: "n", Address: w})
			again := r.at.network + ":" + strings.TrimPrefix(r.at.String(), r.at.network+" ")
			if r.at.isTCP() {
				again = strings.TrimPrefix(again, "tcp:")
			}
			if key := resolved(t, Spec{Name: "n", Address: addr(again)}).Key(); key != r.Key() {
				t.Errorf("%q has key %q, which reads back as %q", s, r.Key(), key)
			}
		}
	})
}

func TestResolvedSurvivesJSON(t *testing.T) {
	for _, s := range []Spec{
		{Program: "web", Name: "http", Address: addr(":80"), PerSlot: true},
		{Address: addr("[::1]:80"), Sockopts: Sockopts{IPv6Only: "false"}},
		{Address: addr("localhost:80")},
		{Address: addr("udp:0.0.0.0:53"), Sockopts: Sockopts{Interface: "lo"}},
		{Address: addr("unix:/run/../run/web.sock"), Access: Access{User: "root", Mode: 0o660}},
		{Address: addr("unix:@web")},
	} {
		before := resolved(t, s)
		text := must.Get(json.Marshal(before))(t)
		var after Resolved
		if err := json.Unmarshal(text, &after); err != nil || after != before {
			t.Errorf("%s came back as %+v (%v), not %+v", text, after, err, before)
		}
	}
}

func TestRecordedListenerThatContradictsItselfIsRefused(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"Spec":{"Address":"127.0.0.1:80"},"IP":"127.0.0.2"}`,
		`{"Spec":{"Address":"web.example:80"},"IP":""}`,
		`{"Spec":{"Address":"unix:@x","Mode":384},"IP":""}`,
		`{"Spec":{"Address":"nonsense"},"IP":""}`,
	} {
		var r Resolved
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s was accepted as %+v", text, r)
		}
	}
}

func TestListenersOverlapInAnySpelling(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(filepath.Dir(dir), "link")
	must.Do(t, os.Symlink(dir, link))
	spec := func(text string) Spec { // an address, and options
		words := strings.Fields(text)
		s := Spec{Address: addr(words[0])}
		for _, option := range words[1:] {
			switch option {
			case "reuse_port":
				s.ReusePort = true
			case "ipv6_only":
				s.IPv6Only = "true"
			default:
				s.Interface = option
			}
		}
		return s
	}
	for pair, overlap := range map[string]bool{
		"127.0.0.1:80 = 127.0.0.1:080": true, "127.0.0.1:80 = LocalHost:80": true, "[::1]:80 = [::]:80": true,
		"127.0.0.1:80 = [::ffff:127.0.0.1]:80": true, "[::1]:80 = [0:0:0:0:0:0:0:1]:80": true,
		"127.0.0.1:80 = 0.0.0.0:80": true, "127.0.0.1:80 = :80": true, "0.0.0.0:80 = :80": true,
		":80 = :80 ipv6_only": true, "udp::53 = udp:127.0.0.1:53": true, "unix:@x = unix:@x": true,
		"127.0.0.1:80 reuse_port = 127.0.0.1:80 reuse_port": true, "127.0.0.1:80 = 0.0.0.0:80 reuse_port": true,
		"127.0.0.1:80 lo = 127.0.0.1:80 lo": true, "127.0.0.1:80 lo = 127.0.0.1:80": true,
		"unix:DIR/s = unix:DIR//x/../s": true, "unix:DIR/s = unix:LINK/s": true,
		"Web.Example:80 = web.example:80": true, // which is not looked up

		"Web.Example:80 = 127.0.0.1:80": false, "127.0.0.1:80 = 127.0.0.1:81": false, "unix:@x = unix:@y": false,
		"127.0.0.1:80 = 127.0.0.2:80": false, "127.0.0.1:80 = udp:127.0.0.1:80": false,
		"127.0.0.1:0 = 127.0.0.1:0": false, "127.0.0.1:80 = [::1]:80": false, "127.0.0.1:80 = [::]:80": false,
		"0.0.0.0:80 = :80 ipv6_only": false, "127.0.0.1:80 reuse_port = 0.0.0.0:80 reuse_port": false,
		"127.0.0.1:80 lo = 127.0.0.1:80 eth0": false,
	} {
		one, two, _ := strings.Cut(strings.NewReplacer("DIR", dir, "LINK", link).Replace(pair), " = ")
		a, b := spec(one).Literal(), spec(two).Literal()
		if a.Overlaps(b) != overlap || b.Overlaps(a) != overlap {
			t.Errorf("%s: overlap is %v", pair, !overlap)
		}
	}
}

func TestPortsChosenByTheKernelAreDistinguishedByProgramAndName(t *testing.T) {
	table := newTable(t)
	a := want(t, Spec{Program: "a", Name: "http", Address: addr("127.0.0.1:0")})
	b := want(t, Spec{Program: "b", Name: "http", Address: addr("127.0.0.1:0")})
	c := want(t, Spec{Program: "b", Name: "other", Address: addr("127.0.0.1:0")})
	apply(t, table, a, b, c)
	if a, b, c := table.Address(a.Key()), table.Address(b.Key()), table.Address(c.Key()); a == b || b == c || a == c {
		t.Errorf("they are at %s, %s and %s", a, b, c)
	}
}
