package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
)

// Fingerprint identifies what p asks for, wherever it is written: twelve hexadecimal digits.
func (p Program) Fingerprint() string {
	p.File, p.Line = "", 0
	text, err := json.Marshal(p)
	if err != nil {
		return "" // impossible: supervisord's record contains it as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// Equal reports whether p and q ask for the same program, wherever they are written. A reload replaces the workers of a
// program that is not Equal to its former self.
func (p Program) Equal(q Program) bool {
	p.File, p.Line, p.positions = "", 0, nil
	q.File, q.Line, q.positions = "", 0, nil
	return reflect.DeepEqual(p, q)
}
