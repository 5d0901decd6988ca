package shell

import (
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// SimpleCommand returns a statement's command if it is nothing but words, assignments and perhaps redirections.
func SimpleCommand(s *syntax.Stmt) (*syntax.CallExpr, bool) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	return call, ok && !s.Negated && !s.Background && !s.Coprocess
}

// DynamicWords returns the words of a command with what a shell expands in them as parts, or false if that is more than
// variables and commands. Assignments become words of env, and exec goes.
func DynamicWords(call *syntax.CallExpr) (words []string, ok bool) {
	for _, a := range call.Assigns {
		value, ok := dynamicWord(a.Value)
		if !ok || a.Append || a.Index != nil || a.Array != nil {
			return nil, false
		}
		words = append(words, a.Name.Value+"="+value)
	}
	if words != nil {
		words = append([]string{"env"}, words...)
	}
	for i, w := range call.Args {
		word, ok := dynamicWord(w)
		if !ok {
			return nil, false
		}
		if i > 0 || word != "exec" {
			words = append(words, word)
		}
	}
	return words, len(words) > 0
}

func dynamicWord(w *syntax.Word) (string, bool) {
	if text, ok := LiteralWord(w); ok {
		return text, true
	}
	var b strings.Builder
	for i, p := range w.Parts {
		list, kind := []syntax.WordPart{p}, byte(Unquoted)
		if q, ok := p.(*syntax.DblQuoted); ok {
			list, kind = q.Parts, Quoted
		}
		for _, p := range list {
			if text, ok := literalParts([]syntax.WordPart{p}, kind == Quoted); ok && (i == 0 || !strings.HasPrefix(text, "~")) {
				b.WriteString(text)
				continue
			}
			_, variable := p.(*syntax.ParamExp)
			_, command := p.(*syntax.CmdSubst)
			var source strings.Builder
			if err := syntax.NewPrinter().Print(&source, p); err != nil || !variable && !command {
				return "", false
			}
			b.WriteString(Part(kind, source.String()))
		}
	}
	return b.String(), true
}

// LiteralWord returns a word of a shell without its quotes, or false if the shell would expand it.
func LiteralWord(w *syntax.Word) (string, bool) {
	if w == nil {
		return "", true
	}
	return literalParts(w.Parts, false)
}

func literalParts(list []syntax.WordPart, quoted bool) (string, bool) {
	var b strings.Builder
	for i, p := range list {
		text, ok := "", false
		switch p := p.(type) {
		case *syntax.SglQuoted:
			text, ok = p.Value, !p.Dollar
		case *syntax.DblQuoted:
			if !p.Dollar {
				text, ok = literalParts(p.Parts, true)
			}
		case *syntax.Lit:
			if quoted || i > 0 || !strings.HasPrefix(p.Value, "~") {
				text, ok = unescape(p.Value, quoted)
			}
		}
		if !ok {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), true
}

// unescape removes the backslashes of a shell. Unquoted, patterns of file names and braces with alternatives are not
// literal.
func unescape(s string, quoted bool) (string, bool) {
	const escapes = "\\$`\"\n"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte(escapes, s[i+1]) >= 0):
			if i++; s[i] != '\n' {
				b.WriteByte(s[i])
			}
		case !quoted && (strings.IndexByte("*?[", s[i]) >= 0 || s[i] == '{' && strings.ContainsAny(s[i:], ",.")):
			return "", false
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), true
}

// Stays reports whether the words start a shell that waits for the program in its script. A shell becomes the program
// if that is all that its script has, or behind exec.
func Stays(words []string) bool {
	if len(words) < 3 || !slices.Contains([]string{"sh", "bash", "dash", "ash", "zsh", "ksh"}, filepath.Base(words[0])) ||
		!strings.HasPrefix(words[1], "-") || !strings.HasSuffix(words[1], "c") {
		return false
	}
	script := strings.Join(Parts(words[2]), "") // variables make no difference
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil || len(file.Stmts) == 0 {
		return false
	}
	last := file.Stmts[len(file.Stmts)-1]
	and, more := last.Cmd.(*syntax.BinaryCmd)
	for ; more && and.Op != syntax.Pipe; and, more = last.Cmd.(*syntax.BinaryCmd) {
		last = and.Y
	}
	call, simple := SimpleCommand(last)
	if !simple || len(call.Args) == 0 {
		return true
	}
	return call.Args[0].Lit() != "exec" && last != file.Stmts[0]
}
