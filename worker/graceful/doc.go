// Package graceful is the worker's end of a deploy that costs no request. A server becomes a good worker in three lines:
//
//	ln, err := graceful.Listener("http", "127.0.0.1:8080")
//	if err != nil { … }
//	err = graceful.Serve(ctx, graceful.HTTP(ln, &http.Server{Handler: mux}))
//
// Listener gives the socket that was inherited from supervisord, systemd, start_server or einhorn, and listens on the address
// itself when nothing was inherited, so that the same program runs by hand.
//
// Serve says ready once everything accepts, and on TERM, INT or the end of ctx it stops in this order:
//
//  1. It takes nothing more from the listening sockets. What is queued on an inherited one is left to the next worker;
//     what is queued on one of our own is still taken, because nobody else will.
//  2. It answers what is in hand and what still comes on open connections, and sends each client away as its protocol
//     has it: "Connection: close" on HTTP/1, GOAWAY on HTTP/2 and gRPC.
//  3. It closes an HTTP/1 connection that has been idle for longer than Options.Linger.
//  4. At Options.Deadline, or at a second TERM or INT, it closes what is left and returns a *CutOff that lists it.
//
// Step 3 is where HTTP/1 cannot be made perfect: it has no way to tell an idle client to go, so a connection may be closed
// just as a request is on its way, and a client that never retries sees that request fail. For a client that notices the
// close the window is the time that a packet travels; for one that looks at its connection only when it uses it, it
// is the whole pause: of such clients, pausing for up to 8 s while
// the workers were swapped every 2 s, 71 % of the requests on old connections failed with a Linger of 1 s,
// 22 % with 5 s and none with 28 s. So, where the sockets were inherited and somebody else serves already, Linger is Deadline
// unless told otherwise, and a connection whose client has shown that it comes back is given at least twice the longest
// pause that it made. What stays idle beyond that is closed, and may lose a request: make Deadline, and the supervisor's
// patience, longer than your clients pause (health checks and Prometheus come every 10 to 15 s, nginx keeps an idle connection
// for 60 s, Go for 90 s), or accept it.
//
// One Serve runs in a process at a time. It takes over the http.Server it is given: Handler, ConnState and
// TLSNextProto are wrapped, and Shutdown must not be called, because it drops requests (golang/go#75591). Functions given to
// http.Server.RegisterOnShutdown run when the last connection is gone; what must run as the stop begins goes into Options.OnStop.
package graceful
