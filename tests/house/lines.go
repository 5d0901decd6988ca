package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"strings"
	"unicode/utf8"
)

// lineCount is how many lines of Go are code, and how many are comments only.
type lineCount struct{ code, comment int }

func (n *lineCount) add(m lineCount) {
	n.code += m.code
	n.comment += m.comment
}

// widest is how many columns a line may have; a tab is one.
const widest = 120

// wideLines lists the lines of a file that are wider.
func wideLines(file string, text []byte) (wide []string) {
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > widest {
			wide = append(wide, fmt.Sprintf("%s:%d: %d", file, number, n))
		}
	}
	return wide
}

// countLines counts the lines of a file. A line of a raw string is code, an empty one too.
func countLines(text []byte) (n lineCount) {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	kinds := map[int]token.Token{} // by line: token.COMMENT if there is nothing else
	for {
		at, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the scanner's own
		}
		first := file.Line(at)
		for line := first; line <= first+strings.Count(literal, "\n"); line++ {
			if _, code := kinds[line]; !code || tok != token.COMMENT {
				kinds[line] = tok
			}
		}
	}
	for _, tok := range kinds {
		if tok == token.COMMENT {
			n.comment++
		} else {
			n.code++
		}
	}
	return n
}

// linked returns a measure of how much code of this project each program links, and of how many modules of others.
func (m *module) linked() (rows []measure) {
	for _, p := range programs {
		code := 0
		for _, s := range m.packages {
			if s.links(p) {
				code += s.count.code
			}
		}
		name := strings.TrimPrefix(p, "cmd/")
		lines := measure{what: "lines of code that " + name + " links", now: fmt.Sprint(code), met: true}
		modules := measure{what: "modules that " + name + " links", now: fmt.Sprint(len(m.modules[p])), met: true,
			detail: m.modules[p]}
		if p == daemonProgram {
			lines.target, lines.met = fmt.Sprint(mostDaemonCode), code <= mostDaemonCode
			modules.target, modules.met = fmt.Sprint(mostDaemonModules), len(m.modules[p]) <= mostDaemonModules
		}
		rows = append(rows, lines, modules)
	}
	return rows
}

// commented are the packages, with all below, whose comments carry the contracts.
var commented = []string{"supervisor", "socket", "worker"}

// comments returns the share of comments in the packages where a reader needs them most.
func (m *module) comments() (rows []measure) {
	for _, top := range commented {
		var n lineCount
		for _, s := range m.packages {
			if s.short() == top || strings.HasPrefix(s.short(), top+"/") {
				n.add(s.count)
			}
		}
		share := 100 * n.comment / max(1, n.code+n.comment)
		rows = append(rows, measure{what: "share of comments in " + top, target: fmt.Sprintf("%d %%", leastComments),
			now: fmt.Sprintf("%d %%", share), met: share >= leastComments})
	}
	return rows
}
