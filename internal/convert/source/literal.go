package source

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"

	"example.org/supervisord/internal/config/document"
)

// token is a token of JavaScript, without white space.
type token struct {
	kind     js.TokenType
	text     string
	line     int
	at       int      // in the text
	comments []string // before it
}

// tokens reads JavaScript, or JSON. It returns the line of a mistake.
func tokens(text string) (list []token, line int, err error) {
	lexer := js.NewLexer(parse.NewInputString(text))
	line, at := 1, 0
	var waiting []string
	for {
		kind, data := lexer.Next()
		if regular := kind == js.DivToken || kind == js.DivEqToken; regular && (len(list) == 0 || beforeRegExp(list[len(list)-1])) {
			kind, data = lexer.RegExp()
		}
		switch kind {
		case js.ErrorToken:
			if at < len(text) {
				return list, line, lexer.Err()
			}
			return append(list, token{kind: js.ErrorToken, line: line, at: at}), line, nil
		case js.CommentToken, js.CommentLineTerminatorToken:
			waiting = append(waiting, comments(strings.TrimPrefix(strings.TrimPrefix(string(data), "//"), "/*"))...)
		case js.WhitespaceToken, js.LineTerminatorToken:
			if strings.Count(string(data), "\n") > 1 {
				waiting = nil
			}
		default:
			list = append(list, token{kind, string(data), line, at, waiting})
			waiting = nil
		}
		line += strings.Count(string(data), "\n")
		at += len(data)
	}
}

// beforeRegExp reports whether a slash after a token begins a regular expression.
func beforeRegExp(t token) bool {
	switch t.kind {
	case js.CloseBraceToken, js.CloseParenToken, js.CloseBracketToken, js.TemplateToken, js.TemplateEndToken, js.StringToken, js.RegExpToken:
		return false
	}
	return !js.IsNumeric(t.kind) && !js.IsIdentifierName(t.kind) || t.kind == js.ReturnToken || t.kind == js.TypeofToken
}

// literal reads values from tokens.
type literal struct {
	file  string
	text  string
	list  []token
	nodes int
}

// ReadLiteral reads the object of a JSON file, or of a JavaScript module: what follows `module.exports =` or `export default`. What is not a literal
// becomes Code. The second result is the code around the object.
func ReadLiteral(file, text string) (root *Node, around []*Node, problem *document.Problem) {
	list, line, err := tokens(text)
	wrong := func(line int, what, remedy string) *document.Problem {
		return &document.Problem{File: file, Position: document.Position{Line: line}, What: what, Remedy: remedy}
	}
	if err != nil {
		return nil, nil, wrong(line, err.Error(), "fix the file")
	}
	r := &literal{file: file, text: text, list: list}
	start := 0
	if first := list[0].kind; first != js.OpenBraceToken && first != js.OpenBracketToken {
		if start = exported(list); start < 0 {
			return nil, nil, wrong(1, "has no object", evaluated(file))
		}
	}
	around = r.statements(0, start)
	root, next := r.value(start, 0)
	if root.Kind == Code {
		return nil, nil, wrong(root.At.Line, "is code, or a brace is missing", evaluated(file))
	}
	if r.nodes > mostNodes {
		return nil, nil, wrong(list[start].line, errTooLarge.Error(), "convert it in parts")
	}
	return root, append(around, r.statements(next, len(list)-1)...), nil
}

func evaluated(file string) string {
	return "write module.exports = { apps: […] }, or convert what it evaluates to: node -p 'JSON.stringify(require(\"./" + path.Base(file) + "\"))' | supervisord convert --from pm2 -"
}

// exported returns the index after `module.exports =` or `export default`, -1 if there is none.
func exported(list []token) int {
	for i := range list {
		switch {
		case i+3 < len(list) && list[i].text == "module" && list[i+1].kind == js.DotToken && list[i+2].text == "exports" && list[i+3].kind == js.EqToken:
			return i + 4
		case i+1 < len(list) && list[i].kind == js.ExportToken && list[i+1].kind == js.DefaultToken:
			return i + 2
		}
	}
	return -1
}

// statements returns the lines of code from one token to another.
func (r *literal) statements(from, to int) (code []*Node) {
	for i := from; i < to; i++ {
		t := r.list[i]
		if t.kind == js.SemicolonToken || t.text == "module" || t.text == "exports" || t.kind == js.DotToken || t.kind == js.EqToken || t.kind == js.ExportToken || t.kind == js.DefaultToken {
			continue
		}
		if len(code) == 0 || code[len(code)-1].At.Line != t.line {
			line, _, _ := strings.Cut(r.text[t.at:], "\n")
			code = append(code, &Node{Kind: Code, At: Location{r.file, t.line}, Value: strings.TrimSpace(line)})
		}
	}
	return code
}

// value reads a value from the token at i, and returns the index of the token after it.
func (r *literal) value(i, depth int) (*Node, int) {
	n := &Node{At: Location{r.file, r.list[i].line}}
	if r.nodes++; r.nodes > mostNodes || depth > deepest {
		r.nodes = mostNodes + 1
		return n, len(r.list) - 1
	}
	next, ok := i+1, true
	switch t := r.list[i]; {
	case t.kind == js.OpenBraceToken:
		next, ok = r.items(n, Map, js.CloseBraceToken, i+1, depth)
	case t.kind == js.OpenBracketToken:
		next, ok = r.items(n, List, js.CloseBracketToken, i+1, depth)
	case t.kind == js.StringToken || t.kind == js.TemplateToken:
		n.Kind, n.Value = Scalar, unquote(t.text)
	case t.kind == js.TrueToken || t.kind == js.FalseToken:
		n.Kind, n.Value = Scalar, t.text
	case t.kind == js.NullToken || t.text == "undefined":
	case t.kind == js.SubToken && js.IsNumeric(r.list[i+1].kind):
		n.Kind, n.Value, next = Scalar, "-"+number(r.list[i+1].text), i+2
	case js.IsNumeric(t.kind):
		n.Kind, n.Value = Scalar, number(t.text)
	default:
		ok = false
	}
	if ok && r.ends(next, depth) {
		return n, next
	}
	return r.code(i)
}

// ends reports whether a value ends before the token at i.
func (r *literal) ends(i, depth int) bool {
	switch t := r.list[i]; t.kind {
	case js.CommaToken, js.CloseBraceToken, js.CloseBracketToken, js.SemicolonToken, js.ErrorToken:
		return true
	default:
		return depth == 0 && t.line > r.list[i-1].line // no semicolon after the object
	}
}

// code reads an expression up to its end.
func (r *literal) code(from int) (*Node, int) {
	open, i := 0, from
	for ; r.list[i].kind != js.ErrorToken; i++ {
		switch r.list[i].kind {
		case js.OpenBraceToken, js.OpenParenToken, js.OpenBracketToken, js.TemplateStartToken:
			open++
		case js.CloseParenToken, js.TemplateEndToken:
			open--
		case js.CloseBraceToken, js.CloseBracketToken:
			if open--; open < 0 {
				return r.codeNode(from, i), i
			}
		case js.CommaToken, js.SemicolonToken:
			if open <= 0 {
				return r.codeNode(from, i), i
			}
		}
	}
	return r.codeNode(from, i), i
}

func (r *literal) codeNode(from, to int) *Node {
	return &Node{Kind: Code, At: Location{r.file, r.list[from].line}, Value: strings.TrimSpace(r.text[r.list[from].at:r.list[to].at])}
}

// items reads what is in braces or brackets. It returns false if something else is there.
func (r *literal) items(n *Node, kind NodeKind, end js.TokenType, i, depth int) (int, bool) {
	n.Kind = kind
	for r.list[i].kind != end {
		if r.list[i].kind == js.ErrorToken {
			return i, false
		}
		key, start := r.list[i], i
		colon := r.list[min(i+1, len(r.list)-1)].kind == js.ColonToken
		named := js.IsIdentifierName(key.kind) || key.kind == js.StringToken || js.IsNumeric(key.kind)
		var item *Node
		switch {
		case kind == Map && named && colon:
			item, i = r.value(i+2, depth+1)
			if item.Key = key.text; key.kind == js.StringToken {
				item.Key = unquote(key.text)
			}
			item.At.Line = key.line
		case kind == Map: // shorthand, a method, ...spread
			item, i = r.code(i)
			item.Key = item.Value
		default:
			item, i = r.value(i, depth+1)
		}
		item.Comments = r.list[start].comments
		n.Items = append(n.Items, item)
		switch r.list[i].kind {
		case js.CommaToken:
			i++
		case end:
		default:
			return i, false
		}
	}
	return i + 1, true
}

// number returns a number in decimal digits.
func number(text string) string {
	text = strings.ReplaceAll(text, "_", "")
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return strconv.FormatInt(n, 10)
	}
	return text
}

// unquote returns a string of JavaScript without its quotes and escapes.
func unquote(text string) string {
	if len(text) >= 2 {
		text = text[1 : len(text)-1]
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		hex := map[byte]int{'x': 2, 'u': 4}[text[i]]
		switch at := strings.IndexByte("nrtbfv", text[i]); {
		case at >= 0:
			b.WriteByte("\n\r\t\b\f\v"[at])
		case text[i] == '\n': // it continues on the next line
		case hex > 0 && i+hex < len(text):
			if n, err := strconv.ParseUint(text[i+1:i+1+hex], 16, 32); err == nil && n > 0 {
				b.WriteRune(rune(n))
				i += hex
			}
		default:
			r, size := utf8.DecodeRuneInString(text[i:])
			b.WriteRune(r)
			i += size - 1
		}
	}
	return b.String()
}
