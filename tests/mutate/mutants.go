package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mutant is one small mistake: the text that stands instead of a part of a file.
type mutant struct {
	file         string
	line, column int
	from, to     int // bytes of the file
	text         string
	what         string // for people
}

// place is where the mistake is.
func (m mutant) place() string { return fmt.Sprintf("%s:%d:%d", m.file, m.line, m.column) }

// mutants returns every mutant of the sources, which are files and directories, in the order of the text.
func mutants(from []string) (all []mutant, err error) {
	for _, path := range from {
		path = filepath.Clean(path)
		files := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.go")); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "doc.go" {
				continue
			}
			found, err := mutantsOf(file)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// mutantsOf returns the mutants of a file.
func mutantsOf(file string) ([]mutant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := maker{file: file, text: string(text), set: token.NewFileSet()}
	tree, err := parser.ParseFile(m.set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			ast.Inspect(f.Body, m.visit)
		}
	}
	return m.found, nil
}

// maker collects the mutants of a file.
type maker struct {
	file, text string
	set        *token.FileSet
	found      []mutant
}

// instead adds a mutant that has other text from one position to another.
func (m *maker) instead(from, to token.Pos, text string) {
	at := m.set.Position(from)
	was := m.text[at.Offset:m.set.Position(to).Offset]
	m.found = append(m.found, mutant{m.file, at.Line, at.Column, at.Offset, m.set.Position(to).Offset, text,
		fmt.Sprintf("%s instead of %s", short(text), short(was))})
}

// short returns the beginning of a text in one line.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:60]) + "…"
	}
	return "`" + text + "`"
}

// source returns the text of a node.
func (m *maker) source(n ast.Node) string {
	return m.text[m.set.Position(n.Pos()).Offset:m.set.Position(n.End()).Offset]
}

// visit adds the mutants of a node.
func (m *maker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		m.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			m.negate(n.Cond)
		}
	case *ast.BinaryExpr:
		m.operator(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			m.instead(n.Pos(), n.End(), m.source(n.X))
		}
	case *ast.ExprStmt, *ast.IncDecStmt:
		m.instead(n.Pos(), n.End(), "{}")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			m.instead(n.Pos(), n.End(), "{}")
		}
	case *ast.CaseClause:
		if len(n.Body) > 0 {
			m.instead(n.Body[0].Pos(), n.Body[len(n.Body)-1].End(), "{}")
		}
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
			m.instead(n.Pos(), n.End(), other)
		}
	case *ast.BasicLit:
		if v, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
			m.instead(n.Pos(), n.End(), strconv.Itoa(v+1))
		}
	case *ast.BranchStmt:
		others := map[token.Token]string{token.CONTINUE: "break", token.BREAK: "continue"}
		if other, ok := others[n.Tok]; ok && n.Label == nil {
			m.instead(n.Pos(), n.End(), other)
		}
	}
	return true
}

func (m *maker) negate(condition ast.Expr) {
	m.instead(condition.Pos(), condition.End(), "!("+m.source(condition)+")")
}

// others are the operators that are written by mistake for another.
var others = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.AND: "|", token.OR: "&",
}

// operator adds the mutants of an operation: another operator, or one side alone.
func (m *maker) operator(n *ast.BinaryExpr) {
	if n.Op == token.LAND || n.Op == token.LOR {
		m.instead(n.Pos(), n.End(), m.source(n.X))
		m.instead(n.Pos(), n.End(), m.source(n.Y))
		return
	}
	if other, ok := others[n.Op]; ok {
		m.instead(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other)
	}
}
