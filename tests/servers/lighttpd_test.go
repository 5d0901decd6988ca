package servers

import "testing"

func TestLighttpdLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "lighttpd", "/usr/sbin/lighttpd")
	s := prepare(t, "lighttpd")
	backend(t, s.at("127.0.0.1:9001"))
	s.launch()
	at := s.serves().at("127.0.0.1:8103")
	l := s.press(append(web(at, get("/", "under supervisord")), slow(at, get("/app/slow", "slow")))...)
	s.redeploy()
	l.lossless()
}
