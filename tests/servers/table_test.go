package servers

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

// server is an example of a server that opens its port as always, and how it is tested.
type server struct {
	example string // its file in examples/servers, or in naive
	address string // where its clients reach it
	pkg     string // the Debian package without which the test is skipped, and a file of it; "": it is built
	file    string
	program func(t testing.TB) string // brings it, and its place in the copy of the example; nil: nothing to bring
	at      string
	ask     load.Ask // nil: get("/", answer)
	slowly  load.Ask // takes 0.3 s; nil: there is no such request
	slow    int      // this many clients ask so: more than a server has processes or threads would block it
	more    func(s *site) []clients
	prepare func(s *site) // before the launch
	keeps   bool          // it loses nothing on connections that clients keep either
}

// answer is part of every answer of the example applications.
const answer = "generation="

var slowPage = get("/slow", answer)

// table has a row for each example.
func table() []server {
	psgi, php := get("/?0.3", answer), get("/?ms=300", answer)
	return []server{
		{example: "nginx", address: "127.0.0.1:8102", pkg: "nginx-light", file: "/usr/sbin/nginx",
			ask:    get("/", "under supervisord"),
			slowly: get("/app/slow", "slow"), slow: 6, prepare: withBackend},
		{example: "haproxy", address: "127.0.0.1:8101", pkg: "haproxy", file: "/usr/sbin/haproxy", ask: get("/", "fast"),
			slowly: get("/slow", "slow"), slow: 6,
			prepare: withBackend},
		{example: "lighttpd", address: "127.0.0.1:8103", pkg: "lighttpd", file: "/usr/sbin/lighttpd",
			ask:    get("/", "under supervisord"),
			slowly: get("/app/slow", "slow"), slow: 6, prepare: withBackend},
		{example: "apache", address: "127.0.0.1:8122", pkg: "apache2-bin", file: "/usr/sbin/apache2",
			ask: get("/", "under supervisord")},
		{example: "caddy", address: "127.0.0.1:8118", program: caddyProgram, at: "bin/caddy"},
		{example: "redis", address: "127.0.0.1:8123", pkg: "redis-server", file: "/usr/bin/redis-server",
			ask: line("PING\r\n", "+PONG")},
		{example: "memcached", address: "127.0.0.1:8124", pkg: "memcached", file: "/usr/bin/memcached",
			ask: line("version\r\n", "VERSION")},
		{example: "dnsmasq", address: "127.0.0.1:8125", pkg: "dnsmasq-base", file: "/usr/sbin/dnsmasq", ask: resolveTCP,
			more: resolvers},
		{example: "php-fpm", address: "127.0.0.1:8104", pkg: "php-fpm", file: "/usr/sbin/php-fpm8.2", slowly: php, slow: 6},
		{example: "php-cgi", address: "127.0.0.1:9003", pkg: "php-cgi", file: "/usr/bin/php-cgi8.2"},
		{example: "php-server", address: "127.0.0.1:8126", pkg: "php-cli", file: "/usr/bin/php8.2", slowly: php, slow: 1},
		{example: "gunicorn", address: "127.0.0.1:8111", pkg: "gunicorn", file: "/usr/bin/gunicorn", slowly: slowPage,
			slow: 2, keeps: true},
		{example: "waitress", address: "127.0.0.1:8127", pkg: "python3-waitress", file: "/usr/bin/waitress-serve",
			slowly: slowPage, slow: 2},
		{example: "uwsgi", address: "127.0.0.1:8114", pkg: "uwsgi-plugin-python3",
			file: "/usr/lib/uwsgi/plugins/python311_plugin.so", slowly: slowPage, slow: 2},
		{example: "flask", address: "127.0.0.1:8128", pkg: "python3-flask", file: "/usr/bin/flask", slowly: slowPage,
			slow: 6},
		{example: "django", address: "127.0.0.1:8129", pkg: "python3-django",
			file: "/usr/lib/python3/dist-packages/django/__init__.py", slowly: slowPage, slow: 6},
		{example: "uvicorn", address: "127.0.0.1:8112", pkg: "uvicorn", file: "/usr/bin/uvicorn", slowly: slowPage, slow: 6},
		{example: "hypercorn", address: "127.0.0.1:8113", pkg: "python3-hypercorn", file: "/usr/bin/hypercorn",
			slowly: slowPage, slow: 6},
		{example: "puma", address: "127.0.0.1:8116", pkg: "puma", file: "/usr/bin/puma", slowly: slowPage, slow: 2},
		{example: "unicorn", address: "127.0.0.1:8117", pkg: "unicorn", file: "/usr/bin/unicorn", slowly: slowPage, slow: 1},
		{example: "webrick", address: "127.0.0.1:8130", pkg: "ruby-webrick", file: "/usr/bin/rackup", slowly: slowPage,
			slow: 6},
		{example: "thin", address: "127.0.0.1:8131", pkg: "thin", file: "/usr/bin/thin", slowly: slowPage, slow: 1},
		{example: "starman", address: "127.0.0.1:8105", pkg: "starman", file: "/usr/bin/starman", slowly: psgi, slow: 2},
		{example: "starlet", address: "127.0.0.1:8106", pkg: "starlet", file: "/usr/share/perl5/Starlet.pm", slowly: psgi,
			slow: 2, keeps: true},
		{example: "mojolicious", address: "127.0.0.1:8132", pkg: "libmojolicious-perl", file: "/usr/bin/mojo",
			slowly: slowPage, slow: 6},
		{example: "node", address: "127.0.0.1:8115", pkg: "nodejs", file: "/usr/bin/node", slowly: slowPage, slow: 6},
		{example: "node-cluster", address: "127.0.0.1:8134", pkg: "nodejs", file: "/usr/bin/node", slowly: slowPage, slow: 6},
		{example: "next", address: "127.0.0.1:8141", slowly: slowPage, slow: 6, prepare: next},
		{example: "deno", address: "127.0.0.1:8140", slowly: slowPage, slow: 6, program: denoProgram, at: "bin/deno"},
		{example: "erlang", address: "127.0.0.1:8133", pkg: "erlang-inets", file: "/usr/bin/erl",
			ask: get("/index.html", "under supervisord")},
		{example: "java", address: "127.0.0.1:8119", pkg: "default-jdk-headless", file: "/usr/bin/javac", slowly: slowPage,
			slow: 6},
		{example: "tomcat", address: "127.0.0.1:8137", pkg: "default-jdk-headless", file: "/usr/bin/java", slowly: slowPage,
			slow: 6, prepare: jars},
		{example: "jetty", address: "127.0.0.1:8138", pkg: "default-jdk-headless", file: "/usr/bin/java", slowly: slowPage,
			slow: 6, prepare: jars},
		{example: "reactor-netty", address: "127.0.0.1:8139", pkg: "default-jdk-headless", file: "/usr/bin/java",
			slowly: slowPage, slow: 6, prepare: jars},
		{example: "spring-boot", address: "127.0.0.1:8136", pkg: "default-jdk-headless", file: "/usr/bin/java",
			slowly: slowPage, slow: 6, prepare: jars},
		{example: "go", address: "127.0.0.1:8121", slowly: slowPage, slow: 6, program: goProgram, at: "go/server"},
		{example: "rust", address: "127.0.0.1:8120", slowly: slowPage, slow: 6, program: rustProgram,
			at: "rust/target/release/server"},
	}
}

// rowOf returns the row of an example.
func rowOf(t *testing.T, example string) server {
	t.Helper()
	rows := table()
	i := slices.IndexFunc(rows, func(c server) bool { return c.example == example })
	if i < 0 {
		t.Fatalf("the table has no row for %s", example)
	}
	return rows[i]
}

func TestServersThatOpenTheirPortLoseNoRequest(t *testing.T) {
	t.Parallel()
	for _, c := range table() {
		t.Run(c.example, func(t *testing.T) {
			t.Parallel()
			s := c.prepared(t, examples)
			s.launch()
			l := s.press(c.load(s.serves())...)
			s.redeploy()
			l.lossless()
		})
	}
}

// prepared prepares a site with the example as it is.
func (c server) prepared(t *testing.T, from string) *site {
	t.Helper()
	if c.pkg != "" {
		needs(t, c.pkg, c.file)
	}
	program := ""
	if c.program != nil {
		program = c.program(t)
	}
	s := prepareFrom(t, from, c.example)
	if program != "" {
		s.here = true
		lab.Must(t, os.MkdirAll(filepath.Dir(s.Path(c.at)), 0o755))
		lab.Must(t, exec.Command("cp", program, s.Path(c.at)).Run())
	}
	if c.prepare != nil {
		c.prepare(s)
	}
	return s
}

// load is the usual load on the server, without keep-alive connections: what becomes of these is the server's own
// doing.
func (c server) load(s *site) []clients {
	at := s.at(c.address)
	if c.example == "php-cgi" {
		script := s.Path("php/index.php")
		return []clients{fresh(at, fastCGI(script, "", answer)), slow(at, fastCGI(script, "ms=300", answer))}
	}
	all := []clients{fresh(at, c.asks())}
	if c.slowly != nil {
		slowly := slow(at, c.slowly)
		slowly.count = c.slow
		all = append(all, slowly)
	}
	if c.keeps {
		all = append(all, c.keeping(s))
	}
	if c.more != nil {
		all = append(all, c.more(s)...)
	}
	return all
}

// keeping returns clients that keep their connections.
func (c server) keeping(s *site) clients { return asking("kept", 12, 12, s.at(c.address), c.asks()) }

// asks returns the request that is answered at once.
func (c server) asks() load.Ask {
	if c.ask == nil {
		return get("/", answer)
	}
	return c.ask
}

func withBackend(s *site) { backend(s.T, s.at("127.0.0.1:9001")) }

// line returns a request of a line in a protocol of lines; the answer must begin with want.
func line(request, want string) load.Ask {
	return func(conn *load.Wire, _ bool) (bool, error) {
		if _, err := io.WriteString(conn, request); err != nil {
			return false, err
		}
		got, err := conn.In.ReadString('\n')
		if err == nil && !strings.HasPrefix(got, want) {
			err = fmt.Errorf("%q instead of %q", got, want)
		}
		return false, err
	}
}

// query is a question of DNS for the address of a.test, and resolved the beginning of its answer: no error, one record.
var (
	query    = []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01")
	resolved = []byte("\x12\x34\x85\x80\x00\x01\x00\x01")
)

func resolveTCP(conn *load.Wire, _ bool) (bool, error) {
	if _, err := conn.Write(append([]byte{0, byte(len(query))}, query...)); err != nil {
		return false, err
	}
	head := make([]byte, 2+len(resolved))
	_, err := io.ReadFull(conn.In, head)
	return true, answered(head[2:], err)
}

// answered returns what is wrong with the beginning of an answer.
func answered(head []byte, err error) error {
	if err == nil && !bytes.HasPrefix(head, resolved) {
		return fmt.Errorf("the answer begins with %x, not %x", head, resolved)
	}
	return err
}
