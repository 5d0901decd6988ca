package servers

import "testing"

func TestStarmanLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "starman", "/usr/bin/starman")
	s := open(t, "starman")
	at := s.at("127.0.0.1:8105")
	l := s.press(append(web(at, get("/", "starman")), slow(at, get("/?0.3", "starman")))...)
	s.redeploy()
	l.lossless()
}

func TestStarletLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "starlet", "/usr/bin/plackup", "/usr/share/perl5/Starlet.pm")
	s := open(t, "starlet")
	at := s.at("127.0.0.1:8106")
	l := s.press(append(web(at, get("/", "starlet")), slow(at, get("/?0.3", "starlet")))...)
	s.redeploy()
	l.lossless()
}
