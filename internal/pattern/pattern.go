// Package pattern holds regular expressions that are compiled when they are first used: what a package compiles as it is
// loaded, every worker's start pays for, since the process that becomes the worker begins as supervisord.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that compiles expr once, and panics if it is none, as regexp.MustCompile does.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
