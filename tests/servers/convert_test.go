package servers

import (
	"os/exec"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// converted is an example whose configuration is made by `supervisord convert` from what another supervisor is given.
type converted struct {
	example, needs, program string
	address                 string
	file, text              string // with {dir} and {at}
	answer, slow            string // slow is a path that takes 0.3 s; "": there is none
}

// TestConvertedServersLoseNoRequest runs real servers with configurations that convert has made, and redeploys them
// under load.
func TestConvertedServersLoseNoRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]converted{
		"systemd": {"gunicorn", "gunicorn", "/usr/bin/gunicorn", "127.0.0.1:8111", "gunicorn.service", `[Service]
Type=notify
ExecStart=/usr/bin/gunicorn --workers 4 --bind {at} --pid {dir}/gunicorn.pid app:app
WorkingDirectory={dir}/wsgi
Restart=always
KillMode=mixed
`, answer, "/slow"},
		"supervisor": {"starman", "starman", "/usr/bin/starman", "127.0.0.1:8105", "supervisord.conf", `[program:starman]
command=/usr/bin/starman --workers 10 --listen {at} --pid {dir}/starman.pid starman/app.psgi
directory={dir}
`, answer, "/?0.3"},
		"procfile": {"puma", "puma", "/usr/bin/puma", "127.0.0.1:8116", "rack/Procfile",
			"puma: exec puma -b tcp://{at} config.ru\n", answer, "/slow"},
		"pm2": {"unicorn", "unicorn", "/usr/bin/unicorn", "127.0.0.1:8117", "ecosystem.json",
			`{ "apps": [{ "name": "unicorn", "script": "/usr/bin/unicorn",
	"interpreter": "none", "args": "-E none -l {at}", "cwd": "./rack" }] }
`, answer, "/slow"},
		"compose": {"nginx", "nginx-light", "/usr/sbin/nginx", "127.0.0.1:8102", "compose.yaml", `services:
  nginx:
    entrypoint: [/usr/sbin/nginx, -p, nginx/, -c, "{dir}/nginx/nginx.conf", -e, stderr]
    working_dir: "{dir}"
`, "under supervisord", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, c.needs, c.program)
			s := prepareFrom(t, examples, c.example)
			s.write(c.file, strings.NewReplacer("{dir}", s.dir, "{at}", s.at(c.address)).Replace(c.text))
			out, err := exec.Command(supervisord(), "convert", "--force", "-o", s.path(c.example+".toml"),
				s.path(c.file)).CombinedOutput()
			lab.Must(t, err)
			if text := s.read(c.example + ".toml"); strings.Contains(text, "stop-first") ||
				!strings.Contains(text, s.at(c.address)) {
				t.Fatalf("the server was not recognized: %s\n%s", out, text)
			}
			s.write(c.example+".toml", lab.WithHandover(s.read(c.example+".toml")))
			if out, err := s.command("check").CombinedOutput(); err != nil {
				t.Fatalf("check: %v: %s\n%s", err, out, s.read(c.example+".toml"))
			}
			s.launch()
			at := s.serves().at(c.address)
			load := []clients{fresh(at, get("/", c.answer))}
			if c.slow != "" {
				slowly := slow(at, get(c.slow, c.answer))
				slowly.count = 2
				load = append(load, slowly)
			}
			l := s.press(load...)
			s.redeploy()
			l.lossless()
		})
	}
}
