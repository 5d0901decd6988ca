package servers

import "testing"

func TestHAProxyLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "haproxy", "/usr/sbin/haproxy")
	s := prepare(t, "haproxy")
	backend(t, s.at("127.0.0.1:9001"))
	s.launch()
	at := s.serves().at("127.0.0.1:8101")
	l := s.press(append(web(at, get("/", "fast")), slow(at, get("/slow", "slow")))...)
	s.redeploy()
	l.lossless()
}
