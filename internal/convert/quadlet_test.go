package convert

import "testing"

func TestQuadletIsConverted(t *testing.T) {
	files := map[string]string{
		"shop.container": `[Unit]
Description=The shop
After=network-online.target

[Container]
Image=docker.io/library/python:3.13
Exec=gunicorn --bind 0.0.0.0:8000 shop.wsgi
Environment=DEBUG=0 "GREETING=good day"
EnvironmentFile=-/etc/shop.env
PublishPort=127.0.0.1:80:8000
PublishPort=9000
Volume=/srv/media:/media
User=daemon
WorkingDir=/srv/shop
StopSignal=SIGTERM
NoNewPrivileges=true
HealthCmd=curl -f http://localhost:8000/
AutoUpdate=registry

[Service]
Restart=always
TimeoutStopSec=70

[Install]
WantedBy=default.target
`}
	r, err := unitFiles(t, "shop.container", files)
	contains(t, r, err, "[program.shop]", `["gunicorn", "--bind", "0.0.0.0:8000", "shop.wsgi"]`,
		`address = "127.0.0.1:80"`, `binds   = "0.0.0.0:8000"`, `user`, `"daemon"`,
		`GREETING = "good day"`, `"-/etc/shop.env"`, `= "/srv/shop"`, `timeout = "70s"`, `when = "always"`,
		"shop.container:6: Image = docker.io/library/python:3.13: no equivalent",
		"shop.container:11: PublishPort = 9000: no equivalent",
		"Volume = /srv/media:/media: no equivalent",
		"HealthCmd = curl -f http://localhost:8000/: no equivalent: write health.method",
		"AutoUpdate = registry: not needed", "an ENTRYPOINT of the image would come before it")
	if r.Programs != 1 || r.Off != 0 {
		t.Errorf("%d programs, %d off", r.Programs, r.Off)
	}
}

func TestQuadletWithoutAKnownCommandIsCommentedOut(t *testing.T) {
	for text, want := range map[string]string{
		"[Container]\nImage=quay.io/a/b\nPublishPort=8080:80\n": "the command is in the image",
		"[Container]\nImage=quay.io/a/b\nExec=serve --port 80\n": "the image quay.io/a/b may have an " +
			"ENTRYPOINT",
		"[Container]\nImage=quay.io/a/b\nEntrypoint=/app/serve\nExec=--port 80\n": "/app/serve is in the image " +
			"quay.io/a/b, and not on this machine",
		"[Container]\nImage=quay.io/a/b\nExec=--port 80\nEntrypoint=\"/app/serve\"": "= [\"/app/serve\", \"--port\", \"80\"]",
	} {
		r, err := unitFiles(t, "b.container", map[string]string{"b.container": text})
		contains(t, r, err, want)
		if r.Off != 1 {
			t.Errorf("%s: %d off, %d programs\n%s", text, r.Off, r.Programs, r.Text)
		}
	}
}
