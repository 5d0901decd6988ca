package config

import (
	"strings"

	"example.org/supervisord/internal/pattern"
)

// removed are the keys that supervisord had before its first release, by their full name without the program's, such as
// "program.listen.nonblock", and what to do instead. The table goes with version 1.0.
var removed = map[string]string{
	"program.drain.idle": "remove it: drain.silence is how long an open connection must be silent before its worker is told to stop",
}

// programPrefix is the beginning of the full name of a key of a program; an index is that of an element of an array.
var programPrefix, index = pattern.Lazy(`^program\.("[^"]*"|[^.]+)`), pattern.Lazy(`\[\d+\]`)

// removedKey returns what to do instead of a key that was removed; "": the key never existed. table is the full name of
// the key's table, such as "program.web.listen[0]".
func removedKey(table, key string) string { return removed[genericName(table+"."+key)] }

// genericName returns the full name of a key without the program's name and without indexes.
func genericName(key string) string {
	key = programPrefix().ReplaceAllString(strings.TrimPrefix(key, "."), "program")
	return index().ReplaceAllString(key, "")
}
