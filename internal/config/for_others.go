package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Quote writes a string in TOML. What is not UTF-8, which a TOML file cannot contain, becomes U+FFFD.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// CheckVariable returns why a program cannot set a variable of this name; nil: it can.
func CheckVariable(name string) error { return checkVariable(name, nil) }

// CheckEnvironmentFile returns why the text of an environment file cannot be read; nil: it can. name is for the error.
func CheckEnvironmentFile(name, text string) error {
	_, err := parseEnvironment(name, text, nil)
	return err
}

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

// Equal reports whether p and q ask for the same program: everything but where they are written.
// A program that is not Equal to its former self rolls at a reload.
func (p Program) Equal(q Program) bool {
	p.File, p.Line, p.listenLines = "", 0, nil
	q.File, q.Line, q.listenLines = "", 0, nil
	return reflect.DeepEqual(p, q)
}
