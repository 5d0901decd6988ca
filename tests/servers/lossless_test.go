package servers

// answer is in what the applications of the examples answer.
const answer = "generation="

// lossless redeploys an example under load, /slow being a request that takes a while, and fails if a request is lost.
func lossless(s *site, address string, slowly int) {
	s.t.Helper()
	at := s.serves().at(address)
	l := s.press(append(web(at, get("/", answer)), slows(at, slowly))...)
	s.redeploy()
	l.lossless()
}

// slows is slow for a server that gives each request a process: with more slow requests than processes it is never free.
func slows(address string, count int) clients {
	c := slow(address, get("/slow", answer))
	c.count = count
	return c
}

// lossy is lossless for a server that loses requests whatever is done: at most so many of each kind per redeploy.
func lossy(s *site, address string, perRedeploy map[string]float64) {
	s.t.Helper()
	at := s.serves().at(address)
	l := s.press(append(web(at, get("/", answer)), slows(at, 6))...)
	s.redeploy()
	l.lossy(perRedeploy)
}
