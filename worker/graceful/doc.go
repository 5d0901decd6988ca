// Package graceful is the worker's end of a deploy that costs no request. Three lines turn a server into a good worker:
//
//	ln, err := graceful.Listener("http", "127.0.0.1:8080")
//	if err != nil { … }
//	err = graceful.Serve(ctx, graceful.HTTP(ln, &http.Server{Handler: mux}))
//
// Listener returns the socket that the process inherited from supervisord, systemd or start_server. If it inherited
// none, Listener listens on the address itself, so the same program also runs by hand.
//
// Serve says ready once every server accepts. On TERM, INT or the end of ctx it stops in this order:
//
//  1. It accepts what was on its way: the connections that are queued, and those whose handshake was under way. Then it
//     accepts nothing more, and leaves later connections on an inherited socket to the next worker.
//  2. It answers requests in flight and those that still arrive on open connections, and sends each client away as the
//     protocol allows: "Connection: close" on HTTP/1, GOAWAY on HTTP/2 and gRPC. A client of HTTP/2 that has just
//     connected gets GOAWAY after its first request, which net/http's would not send again.
//  3. It closes HTTP/1 connections that have been idle for longer than Options.Linger.
//  4. At Options.Deadline, or at a second TERM or INT, it closes what is left and returns a *CutOff that lists it.
//
// Step 3 cannot be perfect: HTTP/1 has no way to tell an idle client to go away, so a connection may be closed while a
// request is on its way, and a client that never retries sees that request fail. For a client that notices the close,
// the critical time is the travel time of a packet; for a client that looks at its connection only when it uses it, the
// critical time is its whole pause. With clients of that kind that paused for up to 8 s, and workers replaced every 2
// s, 71 % of the requests on old connections failed with a Linger of 1 s, 22 % with 5 s, and none with 28 s. Therefore,
// if the sockets were inherited, so that another worker serves already, Linger is Deadline by default, and a connection
// whose client has come back before may stay idle for at least twice its longest pause. A connection that stays idle
// for longer is closed and may lose a request. Make Deadline, and the supervisor's stop timeout, longer than your
// clients pause (health checks and Prometheus come every 10 to 15 s, nginx keeps an idle connection for 60 s, Go for 90
// s), or accept the loss.
//
// Only one Serve runs in a process at a time. Serve takes over the http.Server that it is given: it wraps Handler,
// ConnState and TLSNextProto. Do not call Shutdown, because it drops requests (golang/go#75591). Functions registered
// with http.Server.RegisterOnShutdown run when the last connection is gone; what must run when the stop begins goes
// into Options.OnStop.
package graceful
