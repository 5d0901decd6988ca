package servers

import "testing"

func TestNginxLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "nginx-light", "/usr/sbin/nginx")
	s := prepare(t, "nginx")
	backend(t, s.at("127.0.0.1:9001"))
	s.launch()
	at := s.serves().at("127.0.0.1:8102")
	l := s.press(append(web(at, get("/", "under supervisord")), slow(at, get("/app/slow", "slow")))...)
	s.redeploy()
	l.lossless()
}

func TestNginxThatKeepsConnectionsLosesARequestOnEachAtMost(t *testing.T) {
	t.Parallel()
	needs(t, "nginx-light", "/usr/sbin/nginx")
	s := patient(t, "nginx")
	s.replace("nginx/nginx.conf", "keepalive_timeout 0;", "keepalive_timeout 75s;")
	s.launch()
	at := s.serves().at("127.0.0.1:8102")
	l := s.press(web(at, get("/", "under supervisord"))...)
	s.redeploy()
	l.lossy(map[string]float64{"kept": 12})
}
