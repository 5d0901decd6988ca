package meant

import (
	"testing"

	"example.org/supervisord/internal/config/document"
)

// TestEachWordHasOneMeaning: no word is in two entries, and each is plain, as it is looked for; each entry says what to
// do, or writes any value in a way that exists.
func TestEachWordHasOneMeaning(t *testing.T) {
	seen := map[string]bool{}
	entries, values := words()
	for _, e := range entries {
		for _, word := range e.words {
			if seen[word] && word[0] != '=' || word != document.Plain(word) {
				t.Errorf("%s, of %s%s, is listed twice, or not plain", word, e.key, e.remedy)
			}
			seen[word] = true
		}
		known := writers[e.how] != nil || values[e.how] != nil
		if len(e.words) == 0 || known == (e.remedy != "") {
			t.Errorf("the entry %+v has no words, or no way to write a value", e)
		}
	}
}
