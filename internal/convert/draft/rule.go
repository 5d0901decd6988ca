package draft

import (
	"maps"
	"strings"

	"example.org/supervisord/internal/convert/source"
)

// Keys adds rules of which one may be for several keys, such as "httpd httpd_host httpd_port", to others.
func Keys(others, grouped Rules) Rules {
	all := Rules{}
	maps.Copy(all, others)
	for names, r := range grouped {
		for name := range strings.FieldsSeq(names) {
			all[name] = r
		}
	}
	return all
}

// To converts a key to a key of the configuration, such as "stop.signal".
func To(key string, read Reader) Rule {
	return func(p *Block, s source.Setting) {
		if s, ok := p.Filled(s); ok {
			if value, ok := read(p, key, s); ok {
				p.Set(key, value)
			}
		}
	}
}

// Always sets a key of the configuration, whatever the value.
func Always(key string, value any) Rule {
	return func(p *Block, _ source.Setting) { p.Set(key, value) }
}

// None is for a key that has no equivalent, with what to do instead.
func None(instead string) Rule {
	return func(p *Block, s source.Setting) { p.Lacks(s, instead) }
}

// Noted is for a key that takes effect elsewhere, and where.
func Noted(comment string) Rule {
	return func(p *Block, s source.Setting) { p.Note("", s, comment) }
}

// Unneeded is for a key that supervisord needs no equivalent of, and why.
func Unneeded(why string) Rule { return Noted("not needed: " + why) }

// Commented is for a key by which the source does not start the program.
func Commented(why string) Rule {
	return func(p *Block, s source.Setting) {
		p.Off = true
		p.Lacks(s, why)
	}
}

// Kept is the rule of a key that code reads from Block.Given.
func Kept(*Block, source.Setting) {}

// Condition looks at a value. It reports false for ok, after the mistake, if the value is invalid.
type Condition func(p *Block, s source.Setting) (yes, ok bool)

// When is for a key whose value decides between two rules.
func When(is Condition, then, otherwise Rule) Rule {
	return func(p *Block, s source.Setting) {
		if filled, ok := p.Filled(s); ok {
			switch yes, ok := is(p, filled); {
			case yes:
				then(p, s)
			case ok:
				otherwise(p, s)
			}
		}
	}
}

// Whether is for a key that is true or false.
func Whether(on, off Rule) Rule {
	return When(func(p *Block, s source.Setting) (bool, bool) { return p.Truth(s) }, on, off)
}

// Is compares a value, without regard to case.
func Is(value string) Condition {
	return func(_ *Block, s source.Setting) (yes, ok bool) {
		return strings.EqualFold(strings.TrimSpace(s.Value), value), true
	}
}

// Notes returns the rules of the keys that supervisord has no equivalent of. The text says for each what becomes of it,
// below a heading:
//
//	[Service]
//	PIDFile Private*
//		not needed: supervisord starts the program in the foreground, and knows its PID
func Notes(text, heading string) Rules {
	_, text, _ = strings.Cut(text, "["+heading+"]\n")
	text, _, _ = strings.Cut(text, "\n[")
	all := Rules{}
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		names, comment, _ := strings.Cut(block, "\n\t")
		comment = strings.ReplaceAll(comment, "\n\t", " ")
		rule := Noted(comment)
		if instead, ok := strings.CutPrefix(comment, "no equivalent: "); ok {
			rule = None(instead)
		}
		for name := range strings.FieldsSeq(names) {
			all[name] = rule
		}
	}
	return all
}

// For returns the rule of a key: its own, or that of its longest beginning with a star.
func (r Rules) For(key string) (rule Rule, ok bool) {
	if rule, ok = r[key]; ok {
		return rule, true
	}
	for n := len(key); n > 0; n-- {
		if rule, ok = r[key[:n]+"*"]; ok {
			return rule, true
		}
	}
	return nil, false
}
