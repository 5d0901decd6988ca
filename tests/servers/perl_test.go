package servers

import "testing"

// Starman drops connections that it has accepted and not read when it stops, so it must have none.
func TestStarmanLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "starman", "/usr/bin/starman")
	needs(t, "libserver-starter-perl", "/usr/share/perl5/Server/Starter.pm")
	s := open(t, "starman")
	at := s.at("127.0.0.1:8105")
	l := s.press(append(web(at, get("/", "starman")), slow(at, get("/?0.3", "starman")))...)
	s.redeploy()
	l.lossless()
}

func TestStarletLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "starlet", "/usr/bin/plackup", "/usr/share/perl5/Starlet.pm")
	needs(t, "libserver-starter-perl", "/usr/share/perl5/Server/Starter.pm")
	s := open(t, "starlet")
	at := s.at("127.0.0.1:8106")
	l := s.press(append(web(at, get("/", "starlet")), slow(at, get("/?0.3", "starlet")))...)
	s.redeploy()
	l.lossless()
}
