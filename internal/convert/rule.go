package convert

import (
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
)

// keys returns rules of which one may be for several keys: "httpd httpd_host httpd_port".
func keys(grouped draft.Rules) draft.Rules {
	all := draft.Rules{}
	for names, r := range grouped {
		for name := range strings.FieldsSeq(names) {
			all[name] = r
		}
	}
	return all
}

// to converts a key to a key of the configuration, such as "stop.signal".
func to(key string, read draft.Reader) draft.Rule {
	return func(p *draft.Target, s source.Setting) {
		if s, ok := p.Filled(s); ok {
			if value, ok := read(p, key, s); ok {
				p.Set(key, value)
			}
		}
	}
}

// always sets a key of the configuration, whatever the value.
func always(key string, value any) draft.Rule {
	return func(p *draft.Target, _ source.Setting) { p.Set(key, value) }
}

// none is for a key that has no equivalent, with what to do instead.
func none(instead string) draft.Rule {
	return func(p *draft.Target, s source.Setting) { p.Lacks(s, instead) }
}

// noted is for a key that takes effect elsewhere, and where.
func noted(comment string) draft.Rule {
	return func(p *draft.Target, s source.Setting) { p.Note("", s, comment) }
}

// unneeded is for a key that supervisord needs no equivalent of, and why.
func unneeded(why string) draft.Rule { return noted("not needed: " + why) }

// commented is for a key by which the source does not start the program.
func commented(why string) draft.Rule {
	return func(p *draft.Target, s source.Setting) {
		p.Off = true
		p.Lacks(s, why)
	}
}

// kept is the rule of a key that code reads from Target.Given.
func kept(*draft.Target, source.Setting) {}

// condition looks at a value. It reports false for ok, after the mistake, if the value is invalid.
type condition func(p *draft.Target, s source.Setting) (yes, ok bool)

// when is for a key whose value decides between two rules.
func when(is condition, then, otherwise draft.Rule) draft.Rule {
	return func(p *draft.Target, s source.Setting) {
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

// whether is for a key that is true or false.
func whether(on, off draft.Rule) draft.Rule {
	return when(func(p *draft.Target, s source.Setting) (bool, bool) { return p.Truth(s) }, on, off)
}

// is compares a value, without regard to case.
func is(value string) condition {
	return func(_ *draft.Target, s source.Setting) (yes, ok bool) {
		return strings.EqualFold(strings.TrimSpace(s.Value), value), true
	}
}

// atMost compares a number.
func atMost(n int) condition {
	return func(p *draft.Target, s source.Setting) (yes, ok bool) {
		i, ok := p.Integer(s)
		return ok && i <= n, ok
	}
}
