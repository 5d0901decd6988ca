package convert

import (
	"fmt"
	"path/filepath"
	"strings"

	"example.org/supervisord/internal/convert/source"
)

// next says what to do with the result, in order. The old supervisor holds the ports, so it must go before the new one starts.
func (d *conversion) next() []string {
	unit := filepath.Base(d.Name)
	off := map[source.SourceKind]string{
		source.StartServer: "stop start_server (start_server --stop, or its own supervisor)",
		source.Supervisor:  "stop supervisor: systemctl disable --now supervisor",
		source.Procfile:    "stop foreman, or what runs the Procfile",
		source.Systemd:     "systemctl disable --now " + unit,
		source.PM2:         "pm2 stop " + unit + ", and pm2 delete " + unit + " && pm2 save when all is well",
		source.Compose:     "docker compose stop " + strings.Join(d.Running(), " "),
	}[d.Kind]
	if d.Kind == source.Systemd && strings.HasSuffix(unit, ".service") {
		off += " " + strings.TrimSuffix(unit, ".service") + ".socket (if there is one)"
	}
	if name, is := strings.CutSuffix(unit, ".container"); is {
		off = "systemctl stop " + name + ".service, and move " + unit + " away, else podman makes the service again at boot"
	}
	run := "supervisord -c FILE (docs/systemd.md runs it at boot)"
	return []string{
		`read each "no equivalent" and "to do" in FILE`,
		"supervisord check -c FILE",
		"to try it beside the old one, give the listeners of a copy other ports: supervisord prove -c COPY",
		fmt.Sprintf("%s; then %s", off, run),
		"supervisord prove -c FILE: it deploys under load and says whether a request was lost",
		"from now on deploy with supervisord reload -c FILE",
	}
}
