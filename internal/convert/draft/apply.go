package draft

import (
	"strings"

	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
)

// Rules say what becomes of each key of a source.
type Rules map[string]Rule

// Rule says what becomes of one key.
type Rule func(p *Block, s source.Setting)

// Reader reads the value of a setting for a key of the configuration. It returns false, and says why, if there is no
// such value.
type Reader func(p *Block, key string, s source.Setting) (any, bool)

// Each converts the keys of a section by rules. Keys that none has go to otherwise.
func (p *Block) Each(s *source.Section, known Rules, otherwise Rule) {
	for _, e := range s.Entries {
		if !p.Quiet {
			p.Pending = append(p.Pending, e.Comments...)
		}
		r, ok := known.For(e.Key)
		switch {
		case e.Over != nil:
			p.Note("", e.Setting, "ignored: set again at "+e.Over.String())
		case ok:
			p.Apply(r, e.Setting)
		default:
			p.Apply(otherwise, e.Setting)
		}
	}
}

// Apply converts a setting by its rule.
func (p *Block) Apply(r Rule, s source.Setting) {
	p.Given[s.Key] = s
	r(p, s)
}

// Filled is a setting with its variables expanded, for a value that no shell reads.
func (p *Block) Filled(s source.Setting) (source.Setting, bool) {
	if p.Fill == nil {
		return s, true
	}
	return p.Fill(s)
}

// Resolved returns a setting with the parts of its expanded value replaced by what this machine has now.
func (p *Block) Resolved(s source.Setting, value string) (source.Setting, bool) {
	filled := s
	filled.Text = s.String()
	list := shell.Parts(value)
	for i := 1; i < len(list); i += 2 {
		name := list[i][1:]
		if strings.Contains(name, "SUPERVISORD_SLOT") {
			p.Lacks(s, "the workers of a program share this value; in a command each has its number from a shell: "+
				"SUPERVISORD_SLOT")
			return s, false
		}
		v, ok := p.Host, true
		if !strings.HasPrefix(name, "$(") {
			v, ok = p.Getenv(strings.Trim(name, "${}"))
		}
		if !ok || shell.Dynamic(v) {
			p.Lacks(s, name+" is not set: write its value")
			return s, false
		}
		p.Note("", s, name+" as it was at the conversion")
		list[i] = v
	}
	filled.Value = strings.Join(list, "")
	return filled, true
}

// Get returns a setting that was kept, with its variables expanded.
func (p *Block) Get(key string) (source.Setting, bool) {
	s, ok := p.Given[key]
	if !ok {
		return s, false
	}
	return p.Filled(s)
}

// IsOn reports whether a key that was kept is true.
func (p *Block) IsOn(key string) bool {
	if s, ok := p.Get(key); ok {
		on, _ := p.Truth(s)
		return on
	}
	return false
}
