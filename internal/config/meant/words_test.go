package meant

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/config/document"
)

// TestEachWordHasOneMeaning: no word is in two lists, and each is plain, as it is looked for; a removed key has a
// successor or a remedy.
func TestEachWordHasOneMeaning(t *testing.T) {
	seen := map[string]bool{}
	check := func(words, of string) {
		for word := range strings.FieldsSeq(words) {
			if seen[word] || word != document.Plain(word) {
				t.Errorf("%s, of %s, is listed twice, or not plain", word, of)
			}
			seen[word] = true
		}
	}
	for _, s := range new(Keys).synonyms() {
		check(s.words, s.key)
	}
	for _, u := range unsupported {
		check(u.words, u.remedy)
	}
	for name, moved := range removed {
		if (moved.to == "") == (moved.remedy == "") {
			t.Errorf("removed %s: %+v", name, moved)
		}
	}
}
