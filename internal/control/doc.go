// Package control is the control socket: an HTTP/JSON interface on a unix socket, and its client. docs/control.md tells how it
// is used, docs/openapi.yaml describes it exactly.
//
// The server asks the loop through one narrow door (Asker) whose answers are buffered, and follows its reports through a
// channel that the loop drops when it is not read. Whatever a client does, or does not do, therefore delays only itself;
// limits on size, time and number keep what it can cost small.
package control
