package servers

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// converted are what other supervisors are given for an example, with {dir} and {at}.
var converted = map[string]struct{ example, file, text string }{
	"systemd": {"gunicorn", "gunicorn.service", `[Service]
Type=notify
ExecStart=/usr/bin/gunicorn --workers 4 --bind {at} --pid {dir}/gunicorn.pid app:app
WorkingDirectory={dir}/wsgi
Restart=always
KillMode=mixed
`},
	"supervisor": {"starman", "supervisord.conf", `[program:starman]
command=/usr/bin/starman --workers 10 --listen {at} --pid {dir}/starman.pid starman/app.psgi
directory={dir}
`},
	"procfile": {"puma", "rack/Procfile", "puma: exec puma -b tcp://{at} config.ru\n"},
	"pm2": {"unicorn", "ecosystem.json", `{ "apps": [{ "name": "unicorn", "script": "/usr/bin/unicorn",
	"interpreter": "none", "args": "-E none -l {at}", "cwd": "./rack" }] }
`},
	"compose": {"nginx", "compose.yaml", `services:
  nginx:
    entrypoint: [/usr/sbin/nginx, -p, nginx/, -c, "{dir}/nginx/nginx.conf", -e, stderr]
    working_dir: "{dir}"
`},
}

// TestConvertedServersLoseNoRequest runs real servers with configurations that convert has made, and redeploys them
// under load.
func TestConvertedServersLoseNoRequest(t *testing.T) {
	t.Parallel()
	for name, c := range converted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowOf(t, c.example)
			s := row.prepared(t, examples)
			s.File(c.file, strings.ReplaceAll(c.text, "{at}", s.at(row.address)))
			config := c.example + ".toml"
			if out, code := s.Run("convert", "--force", "-o", s.Path(config), s.Path(c.file)); code != 0 ||
				strings.Contains(s.Read(config), "stop-first") || !strings.Contains(s.Read(config), s.at(row.address)) {
				t.Fatalf("the server was not recognized: %d, %s\n%s", code, out, s.Read(config))
			}
			s.File(config, lab.WithHandover(s.Read(config)))
			if out, code := s.run("check"); code != 0 {
				t.Fatalf("check: %d: %s\n%s", code, out, s.Read(config))
			}
			s.launch()
			l := s.press(row.load(s.serves())...)
			s.redeploy()
			l.lossless()
		})
	}
}
