package program

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowedImports lists the packages that a pure core needs. None of them can wait, or read or change the machine.
var allowedImports = []string{
	"cmp", "fmt", "iter", "math/bits", "slices", "strings", "time", "example.org/supervisord/internal/config",
	"example.org/supervisord/worker/life",
}

// impureTime lists the functions of package time that read a clock or wait.
var impureTime = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}

// impure returns what makes a node impure, or "".
func impure(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
		return "uses a channel"
	case *ast.ImportSpec:
		if path, _ := strconv.Unquote(n.Path.Value); !slices.Contains(allowedImports, path) {
			return "imports " + path
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impureTime, n.Sel.Name) {
			return "calls time." + n.Sel.Name
		}
	}
	return ""
}

func TestCoreIsPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if what := impure(n); what != "" {
				t.Errorf("%s: the core %s", fset.Position(n.Pos()), what)
			}
			return true
		})
	}
}
