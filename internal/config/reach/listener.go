package reach

import "strings"

// Placeholder begins "{listener:NAME}": in the URL or address of a probe it stands for the host and port of a listener,
// and leads to the generation of the worker in question.
const Placeholder = "{listener:"

// CutListener finds "{listener:NAME}" in where a probe connects. It returns NAME, and the text with a host and a port
// in its place; a text without it is returned as it is. ok is false if it is anything else than the whole host and
// port.
func CutListener(text string) (name, filled string, ok bool) {
	if !strings.Contains(text, Placeholder) {
		return "", text, true
	}
	scheme, rest := "", text
	if !strings.HasPrefix(text, Placeholder) {
		before, after, _ := strings.Cut(text, "://")
		scheme, rest = before+"://", after
	}
	named, isFirst := strings.CutPrefix(rest, Placeholder)
	name, path, closed := strings.Cut(named, "}")
	if !isFirst || !closed || name == "" || path != "" && !strings.ContainsAny(path[:1], "/?#") {
		return "", "", false
	}
	return name, scheme + "127.0.0.1:80" + path, true
}

// ToListener returns the URL or address of a probe with "{listener:NAME}" instead of its host and port, or of its unix
// socket.
func ToListener(text, name string) string {
	at := Placeholder + name + "}"
	if path, isUnix := strings.CutPrefix(text, "unix:"); isUnix {
		if _, query, isURL := strings.Cut(path, ":/"); isURL {
			return "http://" + at + "/" + query
		}
		return at
	}
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return at
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return scheme + "://" + at + rest[end:]
	}
	return scheme + "://" + at + "/"
}
