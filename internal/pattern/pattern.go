// Package pattern compiles regular expressions when they are first used. Compiling them when a package is loaded would
// slow down every start of a worker, because the process that becomes the worker begins as supervisord.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that compiles expr once, and panics like regexp.MustCompile if it is invalid.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
