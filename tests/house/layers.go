package main

import (
	"fmt"
	"slices"
	"strings"
)

// layers are the packages from the lowest to the highest. A package imports only from lower layers; those of
// one layer do not know each other. A name that ends in /... stands for all packages below.
var layers = [][]string{
	{"socket"},
}

// layer returns the number of a package's layer; -1 if it has none.
func layer(short string) int {
	return slices.IndexFunc(layers, func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			prefix, all := strings.CutSuffix(name, "/...")
			return short == prefix || all && strings.HasPrefix(short, prefix+"/")
		})
	})
}

// upwardImports returns the imports of a package from its own layer or a higher one, and the packages that have none.
func (m *module) upwardImports() (wrong []string) {
	for _, p := range m.packages {
		from := layer(p.short())
		if from < 0 {
			wrong = append(wrong, p.short()+": no layer; add it to layers in tests/house/layers.go")
		}
		for _, path := range p.imports {
			to := strings.TrimPrefix(path, modulePath+"/")
			if layer(to) >= from {
				wrong = append(wrong, fmt.Sprintf("%s imports %s", p.short(), to))
			}
		}
	}
	return wrong
}
