package config

import (
	"strings"

	"example.org/supervisord/internal/pattern"
)

// removed are the keys that supervisord had before its first release, by their full name without the program's, such as
// "program.listen.nonblock": the path of the key that has replaced it in its program, or what to do. The table goes with version 1.0.
var removed = map[string]struct{ to, remedy string }{
	"program.drain.idle":          {"", "remove it: drain.silence is how long an open connection must be silent before its worker is told to stop"},
	"program.environment_dir":     {"environment_file", ""},
	"program.limits.as":           {"limits.rlimits.as", ""},
	"program.limits.cpu":          {"limits.rlimits.cpu", ""},
	"program.limits.data":         {"limits.rlimits.data", ""},
	"program.limits.fsize":        {"limits.rlimits.fsize", ""},
	"program.limits.locks":        {"limits.rlimits.locks", ""},
	"program.limits.msgqueue":     {"limits.rlimits.msgqueue", ""},
	"program.limits.rlimit_nice":  {"limits.rlimits.nice", ""},
	"program.limits.rss":          {"limits.rlimits.rss", ""},
	"program.limits.rtprio":       {"limits.rlimits.rtprio", ""},
	"program.limits.rttime":       {"limits.rlimits.rttime", ""},
	"program.limits.sigpending":   {"limits.rlimits.sigpending", ""},
	"program.listen.defer_accept": {"listen.socket.defer_accept", ""},
	"program.listen.fast_open":    {"listen.socket.fast_open", ""},
	"program.listen.interface":    {"listen.socket.interface", ""},
	"program.listen.ipv6_only":    {"listen.socket.ipv6_only", ""},
	"program.listen.keep_alive":   {"listen.socket.keep_alive", ""},
	"program.listen.reuse_port":   {"listen.socket.reuse_port", ""},
	"program.listen.starter_name": {"", "write compat.starter_names = { LISTENER = \"8080\" } in the program"},
	"program.reload.retry":        {"compat.retry", ""},
	"program.restart.generation":  {"compat.generation", ""},
	"program.status_file":         {"compat.status_file", ""},
	"program.stdin":               {"", "remove it; for a listener as standard input write fd = 0 in its [[program.NAME.listen]]"},
	"program.stop.draining_full":  {"reload.draining_full", ""},
	"program.stop.int_signal":     {"compat.int_signal", ""},
	"program.stop.max_draining":   {"reload.max_draining", ""},
	"program.stop.reload_signal":  {"compat.reload_signal", ""},
	"supervisor.control_mode":     {"", "remove it: supervisord's user and control_group may connect, and everybody with control_read = \"any\""},
}

// programPrefix is the beginning of the full name of a key of a program; an index is that of an element of an array.
var programPrefix, index = pattern.Lazy(`^program\.("[^"]*"|[^.]+)`), pattern.Lazy(`\[\d+\]`)

// genericName returns the full name of a key without the program's name and without indexes.
func genericName(key string) string {
	key = programPrefix().ReplaceAllString(strings.TrimPrefix(key, "."), "program")
	return index().ReplaceAllString(key, "")
}
