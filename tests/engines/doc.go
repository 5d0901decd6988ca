// Package engines tests what is in examples/fleet for other people's engines: each file against the engine's own
// schema, parser or tool, and everything that runs commands against a real supervisord.
package engines
