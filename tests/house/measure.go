package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The targets.
const (
	mostDaemonCode    = 33000 // lines of code that cmd/supervisord links, without comments and empty lines
	mostDaemonModules = 16    // modules of others that it links
	leastComments     = 15    // percent of the lines of code and comments
	mostPackage       = 2500  // lines of code of a package
	mostFields        = 15    // fields of a struct
	mostFunction      = 60    // lines of a function
	longFunction      = 40    // hardly any is longer
)

// oneFieldPerKey are structs with one field for each key of a file format; mostFields is not for them.
var oneFieldPerKey = []string{"internal/config.Program"}

// publicAPI are packages whose callers are in other people's modules.
var publicAPI = []string{"worker/graceful"}

func (m *module) measures() []measure {
	return slices.Concat(m.linked(), m.comments(), []measure{
		none(fmt.Sprintf("lines over %d columns, with tests", widest), m.wide),
		none(fmt.Sprintf("packages over %d lines of code", mostPackage), m.longPackages()),
		none(fmt.Sprintf("structs over %d fields", mostFields), m.wideStructs()),
		none(fmt.Sprintf("functions over %d lines", mostFunction), m.functionsOver(mostFunction)),
		{what: fmt.Sprintf("functions over %d lines", longFunction), target: "hardly any",
			now: fmt.Sprint(len(m.functionsOver(longFunction))),
			met: true, detail: m.functionsOver(longFunction)},
		none("type names used twice", m.sameTypeNames()),
		none("imports that point up", m.upwardImports()),
		none("exported names without a caller outside", m.uncalled()),
	})
}

func none(what string, found []string) measure {
	return measure{what: what, target: "0", now: fmt.Sprint(len(found)), met: len(found) == 0, detail: found}
}

func (m *module) longPackages() (long []string) {
	for _, p := range m.packages {
		if p.count.code > mostPackage {
			long = append(long, fmt.Sprintf("%s: %d", p.short(), p.count.code))
		}
	}
	return long
}

func (m *module) wideStructs() (wide []string) {
	for _, p := range m.packages {
		for _, t := range p.typeSpecs() {
			s, ok := t.Type.(*ast.StructType)
			name := p.short() + "." + t.Name.Name
			if ok && s.Fields.NumFields() > mostFields && !slices.Contains(oneFieldPerKey, name) {
				wide = append(wide, fmt.Sprintf("%s: %d", name, s.Fields.NumFields()))
			}
		}
	}
	return wide
}

// typeSpecs returns the types that a package declares at its top level, outside generated files.
func (s *parsed) typeSpecs() (specs []*ast.TypeSpec) {
	for _, f := range s.files {
		if ast.IsGenerated(f) {
			continue
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, spec := range g.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok {
						specs = append(specs, t)
					}
				}
			}
		}
	}
	return specs
}

func (m *module) functionsOver(lines int) (long []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || ast.IsGenerated(f) {
					continue
				}
				if n := m.fset.Position(fn.End()).Line - m.fset.Position(fn.Pos()).Line + 1; n > lines {
					long = append(long, fmt.Sprintf("%s.%s: %d", p.short(), fn.Name.Name, n))
				}
			}
		}
	}
	return long
}

func (m *module) sameTypeNames() (same []string) {
	where := map[string][]string{}
	for _, p := range m.packages {
		for _, t := range p.typeSpecs() {
			where[t.Name.Name] = append(where[t.Name.Name], p.short())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(where)) {
		if len(where[name]) > 1 {
			same = append(same, name+": "+strings.Join(where[name], ", "))
		}
	}
	return same
}

// uncalled returns the exported functions, types, constants and variables that no other package and no test of one
// uses. Methods are left out: an interface may need them. So is a type that an exported declaration of its package
// mentions.
func (m *module) uncalled() (names []string) {
	used := map[string]bool{}
	for _, p := range m.packages {
		for _, o := range p.info.Uses {
			if o.Pkg() != nil && o.Pkg().Path() != p.path {
				used[key(o)] = true
			}
		}
	}
	for _, p := range m.packages {
		if p.harness || p.types.Name() == "main" || slices.Contains(publicAPI, p.short()) {
			continue
		}
		mentioned := p.mentioned()
		for _, name := range p.types.Scope().Names() {
			o := p.types.Scope().Lookup(name)
			if o.Exported() && !used[key(o)] && !mentioned[o] && !m.generated(o) && !m.tested(p, name) {
				names = append(names, p.short()+"."+name)
			}
		}
	}
	return names
}

// tested reports whether a test of another package uses p's name.
func (m *module) tested(p *parsed, name string) bool {
	use := regexp.MustCompile(`\b` + p.types.Name() + `\.` + name + `\b`)
	for dir, texts := range m.tests {
		if dir != p.dir && slices.ContainsFunc(texts, use.MatchString) {
			return true
		}
	}
	return false
}

// generated reports whether o is declared in a generated file.
func (m *module) generated(o types.Object) bool {
	for _, p := range m.packages {
		for _, f := range p.files {
			if f.FileStart <= o.Pos() && o.Pos() < f.FileEnd {
				return ast.IsGenerated(f)
			}
		}
	}
	return false
}

// key names an object the same whether it comes from source or from export data.
func key(o types.Object) string { return o.Pkg().Path() + "." + o.Name() }

// mentioned returns the types that exported functions, methods, fields and variables of s are made of, and the
// constants of such types: who uses these uses them, too.
func (s *parsed) mentioned() map[types.Object]bool {
	seen := map[types.Object]bool{}
	var walk func(t types.Type)
	walk = func(t types.Type) { walkType(t, s.types, seen, walk) }
	for _, name := range s.types.Scope().Names() {
		o := s.types.Scope().Lookup(name)
		if _, ok := o.(*types.TypeName); !ok && o.Exported() {
			walk(o.Type())
			continue
		}
		if named, ok := o.Type().(*types.Named); ok && o.Exported() {
			walk(named.Underlying())
			for method := range named.Methods() {
				if method.Exported() {
					walk(method.Type())
				}
			}
		}
	}
	for _, name := range s.types.Scope().Names() {
		if c, ok := s.types.Scope().Lookup(name).(*types.Const); ok {
			if named, ok := c.Type().(*types.Named); ok && seen[named.Obj()] {
				seen[c] = true
			}
		}
	}
	return seen
}

// walkType marks the named types of pkg that t is made of, and continues with walk into what is not named.
func walkType(t types.Type, pkg *types.Package, seen map[types.Object]bool, walk func(types.Type)) {
	switch t := t.(type) {
	case *types.Named:
		if t.Obj().Pkg() == pkg {
			seen[t.Obj()] = true
		}
		for a := range t.TypeArgs().Types() {
			walk(a)
		}
	case interface{ Elem() types.Type }: // pointer, slice, array, channel, map
		if mt, ok := t.(*types.Map); ok {
			walk(mt.Key())
		}
		walk(t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			walk(v.Type())
		}
		for v := range t.Results().Variables() {
			walk(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				walk(f.Type())
			}
		}
	}
}
