// Package traffic is the load of the soak and the truth of what it lost. Its clients never send a request twice. What
// fails is a Violation, unless the account of a worker that was killed on purpose says that the worker had exactly this
// in hand.
//
// The kinds of load, each in closed loops that keep a pace:
//
//	new        a connection for each request
//	kept       on the polite program: connections in constant use, until the server announces that it closes
//	session    on the naive program: one to four requests on a connection, with pauses below two seconds, then the
//	           client closes
//	parts      on the naive program: an answer in parts, 300 ms or 2 s apart
//	download   three seconds or longer. The naive program sends as fast as the client reads, which is slow; the
//	           polite one pauses itself
//	websocket  on the polite program: messages and answers, until the server says goodbye, upon which the client
//	           closes and reconnects
//	datagram   to the UDP program
//
// A naive server is not asked to keep connections for longer, nor to hold a WebSocket: it closes them when it is told
// to stop, and docs/worker.md and docs/configuration.md say that the kernel cannot know that a client is about to send.
// Slow readers are what the kernel does show: something is in hand all the time. Sessions and answers in parts are
// shorter than drain.silence.
package traffic
