// Package servers tests third-party servers: each test runs a real server with its configuration from examples/servers,
// puts load on it, redeploys it once, or ten times with -long, and counts the lost requests.
//
//	tests/servers/root fetch           once: unpacks the servers from their Debian packages into a separate root
//	go test -v ./tests/servers -long   prints the figures that docs/servers.md quotes
//
// Without that root a test uses the server installed on this machine, or is skipped.
//
// A test is a site and a load. The site (site_test.go) is a supervisord with a copy of the example, in which every
// address 127.0.0.1:PORT, and every number from 8100 to 8159 and from 9000 to 9059, is replaced by a free one. The load
// (load_test.go) is clients that never retry, half of them with a new connection for each request. Both end with the
// test, which checks that nothing is left.
package servers
