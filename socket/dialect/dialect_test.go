package dialect

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
)

// some lists sockets of every kind, with the addresses that the kernel would report.
var some = []Passed{
	{Name: "http", Address: addr("127.0.0.1:0"), Bound: "127.0.0.1:43210"},
	{Name: "all", Address: addr(":80"), Bound: "[::]:80"},
	{Name: "v6", Address: addr("[fe80::1%lo]:81"), Bound: "[fe80::1%lo]:81"},
	{Name: "path", Address: addr("unix:/run/web.sock"), Bound: "/run/web.sock"},
	{Name: "abstract", Address: addr("unix:@web"), Bound: "@web"},
	{Name: "dns", Address: addr("udp:127.0.0.1:53"), Bound: "127.0.0.1:53"},
}

func TestEachDialectIsWrittenAsItsProgramReadsIt(t *testing.T) {
	for d, want := range map[Name][]string{
		Systemd:     {"LISTEN_FDS=6", "LISTEN_FDNAMES=http:all:v6:path:abstract:dns"},
		StartServer: {"SERVER_STARTER_PORT=127.0.0.1:0=3;80=4;[fe80::1%lo]:81=5;/run/web.sock=6;@web=7;127.0.0.1:53=8", "SERVER_STARTER_GENERATION=9"},
		Nginx:       {"NGINX=3;4;5;6;7;8;"},
		PHPFPM:      {"FPM_SOCKETS=127.0.0.1:43210=3,:::80=4,fe80::1:81=5,/run/web.sock=6"},
		Unicorn:     {"UNICORN_FD=3,4,5,6,7"},
		Gunicorn:    {"GUNICORN_FD=3,4,5,6,7", "GUNICORN_PID=4711"},
		Einhorn: {"EINHORN_FD_0=3", "EINHORN_FD_FAMILY_0=AF_INET", "EINHORN_FD_1=4", "EINHORN_FD_FAMILY_1=AF_INET6", "EINHORN_FD_2=5", "EINHORN_FD_FAMILY_2=AF_INET6",
			"EINHORN_FD_3=6", "EINHORN_FD_FAMILY_3=AF_UNIX", "EINHORN_FD_4=7", "EINHORN_FD_FAMILY_4=AF_UNIX", "EINHORN_FD_5=8", "EINHORN_FD_FAMILY_5=AF_INET",
			"EINHORN_FD_COUNT=6", "EINHORN_FDS=3 4 5 6 7 8", "EINHORN_MASTER_PID=4711", "EINHORN_CHILD_INDEX=2"},
	} {
		if got := told([]Name{d}, some...); !slices.Equal(got, want) {
			t.Errorf("%s is\n%q, want\n%q", d, got, want)
		}
	}
}

func TestDefaultDialectsDoNotChangeAProgram(t *testing.T) {
	got := map[string]bool{}
	for _, v := range told(nil, some[0]) {
		name, _, _ := strings.Cut(v, "=")
		got[name] = true
	}
	want := []string{"EINHORN_FD_0", "EINHORN_FD_COUNT", "EINHORN_FD_FAMILY_0", "LISTEN_FDNAMES", "LISTEN_FDS", "SERVER_STARTER_GENERATION", "SERVER_STARTER_PORT"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("got %q", names)
	}
}

func TestEmptyDialectSetsNoVariable(t *testing.T) {
	if got := told([]Name{}, some...); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestUpgradeDialectSetsNothingWithoutASocket(t *testing.T) {
	for _, d := range All() {
		if got := told([]Name{d}); d.IsUpgrade() && got != nil {
			t.Errorf("%s: %q", d, got)
		}
		if got := told([]Name{d}, some[5]); d.IsUpgrade() && d != Nginx && got != nil {
			t.Errorf("%s of a udp socket: %q", d, got)
		}
	}
}

func TestReservedListsTheVariablesOfTheDialects(t *testing.T) {
	for _, d := range All() {
		for _, v := range told([]Name{d}, some...) {
			name, _, _ := strings.Cut(v, "=")
			if !reserved.ForWorkers(name, []Name{d}) {
				t.Errorf("%s is not reserved in %s", name, d)
			}
			always := d == Systemd || d == StartServer // a worker that reads them would be misled by another process's
			if reserved.ForWorkers(name, []Name{}) != always {
				t.Errorf("%s is reserved without a dialect: %v", name, !always)
			}
			if reserved.ForWorkers(name, []Name(nil)) == d.IsUpgrade() {
				t.Errorf("%s is reserved by default: %v", name, reserved.ForWorkers(name, []Name(nil)))
			}
		}
	}
	for _, name := range []string{"EINHORN_SOCK_PATH", "EINHORN_SOCK_FD", "LISTEN_PID"} {
		if !reserved.ForWorkers(name, []Name(nil)) {
			t.Errorf("%s is not reserved", name)
		}
	}
	for _, name := range []string{"NGINX_HOME", "EINHORN", "PATH"} {
		if reserved.ForWorkers(name, All()) {
			t.Errorf("%s is reserved", name)
		}
	}
	if !reserved.ForWorkers("FPM_SOCKETS_1", []Name{PHPFPM}) {
		t.Error("FPM_SOCKETS_1, which php-fpm reads after FPM_SOCKETS, is not reserved")
	}
}

// The readers below parse the variables by the rules of the programs that read them.

// readNginx: every number ends with ; or :, and text after the last one is ignored.
func readNginx(value string) (fds []int) {
	for {
		end := strings.IndexAny(value, ";:")
		if end < 0 {
			return fds
		}
		fd, err := strconv.Atoi(value[:end])
		if err != nil {
			return fds
		}
		fds, value = append(fds, fd), value[end+1:]
	}
}

// readFPM: pairs separated by commas, each cut at the first =.
func readFPM(value string) map[string]int {
	found := map[string]int{}
	for pair := range strings.SplitSeq(value, ",") {
		if key, fd, ok := strings.Cut(pair, "="); ok {
			found[key], _ = strconv.Atoi(fd)
		}
	}
	return found
}

// readList: numbers separated by commas, as for unicorn and gunicorn.
func readList(value string) (fds []int) {
	for word := range strings.SplitSeq(value, ",") {
		fd, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		fds = append(fds, fd)
	}
	return fds
}

func FuzzDialectsRoundTrip(f *testing.F) {
	f.Add("a", "127.0.0.1:80", "127.0.0.1:80", "unix:/run/a b", "/run/a b")
	f.Add("", ":80", "[::]:80", "udp::53", "[::]:53")
	f.Add("=", "unix:/a,b", "/a,b", "[::ffff:1.2.3.4]:1", "[::ffff:1.2.3.4]:1")
	f.Fuzz(func(t *testing.T, name, address1, bound1, address2, bound2 string) {
		a, err1 := socket.ParseAddress(address1)
		b, err2 := socket.ParseAddress(address2)
		if err1 != nil || err2 != nil || a.IsUnix() && bound1 != a.Path || b.IsUnix() && bound2 != b.Path {
			return
		}
		sockets := []Passed{{Name: name, Address: a, Bound: bound1, FD: 3}, {Name: name, Address: b, Bound: bound2, FD: 4}}
		environ := told(All(), sockets...)
		if got := readNginx(variable(environ, "NGINX")); !slices.Equal(got, []int{3, 4}) {
			t.Errorf("%q: nginx reads %v", environ, got)
		}
		var streams []int
		fpm := readFPM(variable(environ, "FPM_SOCKETS"))
		for i, s := range sockets {
			if !s.Address.IsUDP() {
				streams = append(streams, inherit.FirstFD+i)
			}
			key := s.fpmKey()
			if at, err := netip.ParseAddrPort(s.Bound); err == nil && s.Address.IsTCP() && !strings.Contains(key, at.Addr().WithZone("").String()) {
				t.Errorf("%q is known to php-fpm as %q", s.Bound, key)
			}
			if key != "" && fpm[key] != inherit.FirstFD+i && (i > 0 || fpm[key] != inherit.FirstFD+1) { // of two with one address the later counts
				t.Errorf("%q: php-fpm reads %v", environ, fpm)
			}
		}
		for _, v := range []string{"UNICORN_FD", "GUNICORN_FD"} {
			if got := readList(variable(environ, v)); !slices.Equal(got, streams) {
				t.Errorf("%q: read from %s: %v, want %v", environ, v, got, streams)
			}
		}
	})
}
