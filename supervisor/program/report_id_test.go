package program

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"testing"
)

func TestEveryKindOfReportHasAnIDOfItsOwn(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "report.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			if kind, ok := s.Type.(*ast.Ident); ok && kind.Name == "ReportKind" {
				kinds++
			}
		}
		return true
	})
	seen := map[string]ReportKind{}
	for kind, id := range reportIDs {
		if other, twice := seen[id]; twice || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(id) {
			t.Errorf("%q has the ID %q, as %q", kind, id, other)
		}
		seen[id] = kind
	}
	if kinds == 0 || len(seen) != kinds {
		t.Errorf("%d kinds have %d IDs", kinds, len(seen))
	}
}
