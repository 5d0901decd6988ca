package config

import (
	"errors"
	"fmt"

	"example.org/supervisord/internal/proc"
)

// user reads the name of a user that exists, or a number.
func (v value) user(into *string) {
	var name string
	if v.text(&name) && v.exists(name, "user", proc.UID) {
		*into = name
	}
}

// group reads the name of a group that exists, or a number.
func (v value) group(into *string) {
	var name string
	if v.text(&name) && v.exists(name, "group", proc.GID) {
		*into = name
	}
}

// exists reports whether name is known to the system. A number needs no entry in the user database: containers often have none.
func (v value) exists(name, kind string, lookUp func(string) (uint32, error)) bool {
	_, err := lookUp(name)
	switch {
	case err == nil:
		return true
	case errors.Is(err, proc.ErrIDRange):
		v.problem(fmt.Sprintf("%s is no %s number", name, kind), "write one below 4294967295")
	case proc.Unknown(err):
		v.problem(fmt.Sprintf("there is no %s %q", kind, name), "write one that exists, or create it first")
	default:
		v.problem(fmt.Sprintf("cannot look up the %s %q: %v", kind, name, err), "write its number")
	}
	return false
}
