package servers

// answer is part of every answer of the example applications.
const answer = "generation="

// lossless redeploys an example under load, including slow requests to /slow, and fails if a request is lost.
func lossless(s *site, address string, slowly int) {
	s.t.Helper()
	at := s.serves().at(address)
	l := s.press(append(web(at, get("/", answer)), slows(at, slowly))...)
	s.redeploy()
	l.lossless()
}

// slows is slow for a server with a process per request, which more slow requests than processes would block.
func slows(address string, count int) clients {
	c := slow(address, get("/slow", answer))
	c.count = count
	return c
}

// lossy is lossless for a server that loses requests in any case: at most this many of each kind per redeploy.
func lossy(s *site, address string, perRedeploy map[string]float64) {
	s.t.Helper()
	at := s.serves().at(address)
	l := s.press(append(web(at, get("/", answer)), slows(at, 6))...)
	s.redeploy()
	l.lossy(perRedeploy)
}
