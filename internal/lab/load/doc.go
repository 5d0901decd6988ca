// Package load puts requests on a service and measures what becomes of them. The tests, `supervisord prove` and the measuring
// programs share it; it does not import testing.
//
// A Driver sends requests and never sends one twice. A Load repeats a Driver's requests, at a constant rate or in closed loops,
// and reports each as a Attempt. Times and LongestGap summarize samples.
//
// # A client with a network in front
//
// On loopback a client learns within microseconds that a server has closed a connection, and its request arrives microseconds
// after the connect. A remote client is one round trip behind: its request crosses the close on the way, or arrives on a
// connection that the server accepted long before. A Driver with a RoundTrip behaves like the remote one: on a new connection it
// waits for that time between connect and request, which the latency does not include; a request on a keep-alive connection counts as
// lost if the server closed the idle connection less than that time before. A connection that was closed earlier is replaced
// silently, as every client does.
package load
