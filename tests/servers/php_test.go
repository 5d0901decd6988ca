package servers

import "testing"

func TestPHPFPMBehindNginxLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "nginx-light", "/usr/sbin/nginx")
	needs(t, "php-fpm", "/usr/sbin/php-fpm8.2")
	s := open(t, "php-fpm")
	at := s.at("127.0.0.1:8104")
	l := s.press(append(web(at, get("/", "php-fpm")), slow(at, get("/?ms=300", "php-fpm")))...)
	s.redeploy()
	l.lossless()
}
