// Package supervisor runs programs: it carries out what package program decides.
//
// Supervisor.Run is the one goroutine that owns all state. It takes events from one mailbox, has the program step, and performs the
// actions in order. Everything that may take a while runs in a goroutine of its own and posts its result to the mailbox.
package supervisor
