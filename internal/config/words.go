package config

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Words are strings of a process: its arguments, its environment. They need not be UTF-8, and keep every byte in JSON, which has no other
// strings.
type Words []string

// Word is one of them, or a path.
type Word string

// coded begins the base64 of a word in JSON. No word has a NUL.
const coded = "\x00"

// MarshalText implements encoding.TextMarshaler.
func (w Word) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(w)) && !strings.HasPrefix(string(w), coded) {
		return []byte(w), nil
	}
	return []byte(coded + base64.StdEncoding.EncodeToString([]byte(w))), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Word) UnmarshalText(text []byte) error {
	code, is := strings.CutPrefix(string(text), coded)
	if !is {
		*w = Word(text)
		return nil
	}
	exact, err := base64.StdEncoding.DecodeString(code)
	*w = Word(exact)
	return err
}

// MarshalJSON implements json.Marshaler.
func (w Words) MarshalJSON() ([]byte, error) {
	var words []Word
	if w != nil {
		words = make([]Word, len(w))
	}
	for i, word := range w {
		words[i] = Word(word)
	}
	return json.Marshal(words)
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *Words) UnmarshalJSON(text []byte) error {
	var words []Word
	if err := json.Unmarshal(text, &words); err != nil || words == nil {
		return err
	}
	*w = make(Words, len(words))
	for i, word := range words {
		(*w)[i] = string(word)
	}
	return nil
}
