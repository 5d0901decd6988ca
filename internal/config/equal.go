package config

import "reflect"

// Equal reports whether p and q ask for the same program: everything but the place where they stand.
// A program that is not Equal to its former self rolls at a reload.
func (p Program) Equal(q Program) bool {
	p.File, p.Line, p.listenLines = "", 0, nil
	q.File, q.Line, q.listenLines = "", 0, nil
	return reflect.DeepEqual(p, q)
}
