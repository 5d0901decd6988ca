package config

import (
	"fmt"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
)

// order reports names in `after` that are not programs, and programs that would wait for themselves.
func (l *loader) order() {
	for i := range l.config.Programs {
		p := &l.config.Programs[i]
		items := l.written[p.Name].Child("after").OneOrMore()
		for j, name := range p.After {
			switch others := l.others(p.Name); {
			case name == p.Name:
				l.problems = append(l.problems, items[j].Fault("is the program itself", "remove it"))
			case l.defined[name].Name == "":
				l.problems = append(l.problems, items[j].Fault(fmt.Sprintf("there is no program %q", name), nameOne(name, others)))
			case slices.Contains(p.After[:j], name):
				l.problems = append(l.problems, items[j].Fault(fmt.Sprintf("%q is named twice", name), "remove one of them"))
			default:
				if ring := l.ring(p.Name, name); ring != nil && slices.Min(ring) == p.Name {
					l.problems = append(l.problems,
						items[j].Fault("none of the programs could ever start: "+strings.Join(append(ring, p.Name), " is after "),
							"remove one of these names from its after"))
				}
			}
		}
	}
}

// InOrder returns the programs so that each comes after the programs in its `after`, and otherwise by name.
func (c *Config) InOrder() (order []*Program) {
	done := map[string]bool{}
	var add func(p *Program)
	add = func(p *Program) {
		if done[p.Name] {
			return
		}
		done[p.Name] = true
		for i := range c.Programs {
			if slices.Contains(p.After, c.Programs[i].Name) {
				add(&c.Programs[i])
			}
		}
		order = append(order, p)
	}
	for i := range c.Programs {
		add(&c.Programs[i])
	}
	return order
}

// others are the names of the other programs.
func (l *loader) others(than string) (names []string) {
	for _, p := range l.config.Programs {
		if p.Name != than {
			names = append(names, p.Name)
		}
	}
	return names
}

// nameOne says which program to write instead.
func nameOne(name string, others []string) string {
	if near, ok := document.Nearest(name, others); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(others) == 0 {
		return "remove it: there is no other program"
	}
	return "remove it, or write one of " + strings.Join(others, ", ")
}

// ring returns the programs that would wait for each other if first came after next: from first to the program that
// comes after first; nil: there is no such ring. Of several rings it returns a shortest one.
func (l *loader) ring(first, next string) []string {
	paths, seen := [][]string{{first, next}}, map[string]bool{next: true}
	for len(paths) > 0 {
		path := paths[0]
		paths = paths[1:]
		for _, name := range l.defined[path[len(path)-1]].After {
			if name == first {
				return path
			}
			if !seen[name] && l.defined[name].Name != "" {
				seen[name] = true
				paths = append(paths, append(slices.Clone(path), name))
			}
		}
	}
	return nil
}
