package config

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
)

// user reads the name of a user that exists, or a number.
func (v value) user(into *string) {
	var name string
	if v.text(&name) && v.exists(name, "user", lookUpUser) {
		*into = name
	}
}

// group reads the name of a group that exists, or a number.
func (v value) group(into *string) {
	var name string
	if v.text(&name) && v.exists(name, "group", lookUpGroup) {
		*into = name
	}
}

func lookUpUser(name string) error  { _, err := user.Lookup(name); return err }
func lookUpGroup(name string) error { _, err := user.LookupGroup(name); return err }

// exists reports whether name is known to the system. A number needs no entry in the user database: containers often have none.
func (v value) exists(name, kind string, lookUp func(string) error) bool {
	if n, err := strconv.ParseUint(name, 10, 64); err == nil {
		if n >= 1<<32-1 { // -1 means "leave it" to setuid(2)
			v.problem(fmt.Sprintf("%s is no %s number", name, kind), "write one below 4294967295")
			return false
		}
		return true
	}
	err := lookUp(name)
	var noUser user.UnknownUserError
	var noGroup user.UnknownGroupError
	switch {
	case err == nil:
		return true
	case errors.As(err, &noUser), errors.As(err, &noGroup):
		v.problem(fmt.Sprintf("there is no %s %q", kind, name), "write one that exists, or create it first")
	default:
		v.problem(fmt.Sprintf("cannot look up the %s %q: %v", kind, name, err), "write its number")
	}
	return false
}
