package supervisor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

// The names that what belongs to the loop has in this package, and what of a Supervisor s never changes.
var (
	ofTheLoop = []string{"p", "cg", "g", "w", "q", "u", "d"}
	constant  = []string{"ctx", "disks", "Load", "Launcher", "Watch", "Log"}
)

// A goroutine that reads what the loop changes is a data race that tests under -race meet only now and then. So a
// goroutine gets values; what it found goes back to the loop as a function that it returns, or posts.
func TestGoroutinesGetValuesOnly(t *testing.T) {
	entries := must.Get(os.ReadDir("."))(t)
	fset, files, methods, goroutines := token.NewFileSet(), []*ast.File{}, map[string]bool{}, 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file := must.Get(parser.ParseFile(fset, e.Name(), nil, 0))(t)
		files = append(files, file)
		for _, decl := range file.Decls {
			if f, is := decl.(*ast.FuncDecl); is && f.Recv != nil {
				_, pointer := f.Recv.List[0].Type.(*ast.StarExpr)
				if all, known := methods[f.Name.Name]; !known || all { // of every type
					methods[f.Name.Name] = pointer
				}
			}
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || !calls(call, "later", "Go") || len(call.Args) != 1 {
				return true
			}
			work, is := call.Args[0].(*ast.FuncLit)
			if !is {
				return true
			}
			goroutines++
			for _, used := range usedIn(work.Body, methods) {
				t.Errorf("%s: a goroutine reads %s, which belongs to the loop: give it the value",
					fset.Position(used.Pos()), used.Name)
			}
			return true
		})
	}
	if goroutines < 5 {
		t.Errorf("only %d goroutines were found", goroutines)
	}
}

// calls reports whether a call is of a method with one of these names.
func calls(c *ast.CallExpr, names ...string) bool {
	s, is := c.Fun.(*ast.SelectorExpr)
	return is && slices.Contains(names, s.Sel.Name)
}

// usedIn lists what belongs to the loop in the body of a goroutine, without the functions that the loop calls. A method
// of a pointer is one: the goroutine reads the pointer alone.
func usedIn(body ast.Node, methods map[string]bool) (used []*ast.Ident) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			if len(n.Results) != 1 {
				return true
			}
			method, is := n.Results[0].(*ast.SelectorExpr)
			return !isFunction(n.Results[0]) && !(is && methods[method.Sel.Name])
		case *ast.CallExpr:
			return !isPost(n) || !isFunction(n.Args[0])
		case *ast.SelectorExpr:
			if x, is := n.X.(*ast.Ident); is && x.Name == "s" && !slices.Contains(constant, n.Sel.Name) {
				used = append(used, x)
			}
			ast.Inspect(n.X, func(x ast.Node) bool {
				if x, is := x.(*ast.Ident); is && slices.Contains(ofTheLoop, x.Name) {
					used = append(used, x)
				}
				return true
			})
			return false
		case *ast.Ident:
			if slices.Contains(ofTheLoop, n.Name) {
				used = append(used, n)
			}
		}
		return true
	})
	return used
}

// isPost reports whether a call has the loop call its argument.
func isPost(c *ast.CallExpr) bool { return calls(c, "post") && len(c.Args) == 1 }

func isFunction(e ast.Expr) bool {
	_, is := e.(*ast.FuncLit)
	return is
}
