package config

import "reflect"

// Equal reports whether p and q ask for the same program: everything but the place where they stand (File, Line).
// A program that is not Equal to its former self rolls at a reload.
func (p Program) Equal(q Program) bool {
	p.File, p.Line = "", 0
	q.File, q.Line = "", 0
	return reflect.DeepEqual(p, q)
}
