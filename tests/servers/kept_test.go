package servers

import "testing"

// With these settings of their own, servers announce that they close a connection, and lose no request on those that
// clients keep either.
func TestServersThatAnnounceACloseLoseNoKeptConnection(t *testing.T) {
	t.Parallel()
	for example, announce := range map[string]func(s *site){
		"nginx": func(s *site) {
			s.replace("nginx/nginx.conf", "access_log off;", "access_log off; keepalive_timeout 0;")
		},
		"lighttpd": func(s *site) {
			s.replace("lighttpd/lighttpd.conf", "server.port ", "server.max-keep-alive-requests = 0\nserver.port ")
		},
		"haproxy": func(s *site) {
			s.drain("2s") // it announces a close only when it is told to stop, and these clients are never silent
			s.replace("haproxy/haproxy.cfg", "mode http",
				"mode http\n    option idle-close-on-response\n    timeout http-keep-alive 10s")
		},
		"caddy": func(s *site) {
			s.drain("2s")
			// these clients send their next request within 60 ms, and within seconds if the machine is busy
			s.replace("caddy/Caddyfile", "admin off", "admin off\n	shutdown_delay 3s")
			s.replace("caddy/Caddyfile", "respond ",
				"@stopping vars {http.shutting_down} true\n	header @stopping Connection close\n	respond ")
		},
		"starman": func(s *site) { s.replace("starman.toml", `"--port"`, `"--disable-keepalive", "--port"`) },
		"uvicorn": func(s *site) { s.replace("uvicorn.toml", `"--port"`, `"--header", "connection:close", "--port"`) },
		"uwsgi": func(s *site) {
			s.replace("uwsgi.toml", `"--master"`, `"--add-header", "Connection: close", "--master"`)
		},
		"puma": func(s *site) {
			s.File("rack/puma.rb", "queue_requests false\n")
			s.replace("puma.toml", `"--port"`, `"--config", "puma.rb", "--port"`)
		},
	} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			c := rowOf(t, example)
			s := c.prepared(t, examples)
			announce(s)
			s.launch()
			l := s.press(append(c.load(s.serves()), c.keeping(s))...)
			s.redeploy()
			l.lossless()
		})
	}
}
