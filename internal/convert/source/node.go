package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/pattern"
)

// NodeKind is what a node holds.
type NodeKind int

const (
	Null   NodeKind = iota
	Scalar          // a string, number or boolean, as text
	List
	Map
)

// Node is a value of a structured source, such as JSON or YAML.
type Node struct {
	Kind     NodeKind
	At       Location
	Key      string // in a map
	Value    string // of a scalar
	Items    []*Node
	Comments []string
}

// Get returns the value of a key, nil if there is none.
func (n *Node) Get(key string) *Node {
	for _, item := range n.Items {
		if n.Kind == Map && item.Key == key {
			return item
		}
	}
	return nil
}

// Setting returns the node as a setting: a scalar with its value, another one shortened to a line.
func (n *Node) Setting() Setting {
	s := Setting{At: n.At, Key: n.Key, Value: n.Value, Comments: n.Comments, Node: n}
	if n.Kind != Scalar {
		s.Text = n.Key + ": " + n.String()
	}
	return s
}

// String shows a node on one line.
func (n *Node) String() string {
	var parts []string
	for _, item := range n.Items {
		text := item.String()
		if n.Kind == Map {
			text = item.Key + ": " + text
		}
		parts = append(parts, text)
	}
	switch n.Kind {
	case List:
		return "[" + strings.Join(parts, ", ") + "]"
	case Map:
		return "{" + strings.Join(parts, ", ") + "}"
	case Null:
		return "null"
	}
	return strings.Join(strings.Fields(n.Value), " ")
}

// The limits on a structured source, against one that names itself.
const (
	mostNodes = 20_000
	deepest   = 100
)

var errTooLarge = errors.New("has too many values, or too deep ones")

// yamlLine is where a mistake is, as package yaml says it.
var yamlLine = pattern.Lazy(`^(?:yaml: )?(?:unmarshal errors:\s*)?(?:line (\d+): )?`)

// ReadJSON reads a file with one JSON value.
func ReadJSON(file, text string) (*Node, *document.Problem) {
	r := jsonReader{file: file, text: text, Decoder: json.NewDecoder(strings.NewReader(text))}
	r.UseNumber()
	n, err := r.value(0)
	if _, more := r.Token(); err == nil && more != io.EOF {
		err = errors.New("something follows the value")
	}
	if err != nil {
		return nil, &document.Problem{File: file, Position: document.Position{Line: r.line()},
			What: "is not JSON: " + err.Error()}
	}
	return n, nil
}

type jsonReader struct {
	*json.Decoder
	file, text string
	nodes      int
}

// line returns the line of the token that was read last.
func (r *jsonReader) line() int { return 1 + strings.Count(r.text[:r.InputOffset()], "\n") }

// value reads a value.
func (r *jsonReader) value(depth int) (*Node, error) {
	t, err := r.Token()
	if err != nil {
		return nil, err
	}
	n := &Node{At: Location{File: r.file, Line: r.line()}}
	if r.nodes++; r.nodes > mostNodes || depth > deepest {
		return n, errTooLarge
	}
	switch t {
	case json.Delim('{'):
		n.Kind = Map
	case json.Delim('['):
		n.Kind = List
	case nil:
		return n, nil
	default:
		n.Kind, n.Value = Scalar, fmt.Sprint(t)
		return n, nil
	}
	for r.More() && err == nil {
		err = r.item(n, depth)
	}
	if err == nil {
		_, err = r.Token() // the end
	}
	return n, err
}

// item reads an item of a list, or a key and its value.
func (r *jsonReader) item(n *Node, depth int) error {
	key, line := "", 0
	if n.Kind == Map {
		t, err := r.Token()
		if err != nil {
			return err
		}
		key, line = fmt.Sprint(t), r.line()
	}
	item, err := r.value(depth + 1)
	if err != nil {
		return err
	}
	if item.Key = key; n.Kind == Map {
		item.At.Line = line
	}
	n.Items = append(n.Items, item)
	return nil
}

// ReadYAML reads the first document of a YAML file.
func ReadYAML(file, text string) (*Node, *document.Problem) {
	var root yaml.Node
	err := yaml.Unmarshal([]byte(text), &root)
	r := yamlReader{file: file}
	var n *Node
	if err == nil && len(root.Content) > 0 {
		if n = r.read(root.Content[0], 0); r.nodes > mostNodes {
			err = errTooLarge
		}
	}
	if err != nil {
		m := yamlLine().FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(m[1])
		return nil, &document.Problem{File: file, Position: document.Position{Line: line},
			What: strings.TrimPrefix(err.Error(), m[0]), Remedy: "fix the YAML"}
	}
	if n == nil {
		n = &Node{At: Location{File: file, Line: 1}}
	}
	return n, nil
}

type yamlReader struct {
	file  string
	nodes int
}

// read makes a node of YAML's, with its aliases and merged maps.
func (r *yamlReader) read(y *yaml.Node, depth int) *Node {
	n := &Node{At: Location{File: r.file, Line: y.Line}, Value: y.Value}
	if r.nodes++; r.nodes > mostNodes || depth > deepest {
		r.nodes = mostNodes + 1
		return n
	}
	switch y.Kind {
	case yaml.AliasNode:
		return r.read(y.Alias, depth+1)
	case yaml.SequenceNode:
		n.Kind = List
		for _, item := range y.Content {
			n.Items = append(n.Items, r.read(item, depth+1))
		}
	case yaml.MappingNode:
		n.Kind = Map
		var merged []*Node
		for i := 0; i+1 < len(y.Content); i += 2 {
			key, item := y.Content[i], r.read(y.Content[i+1], depth+1)
			if key.Tag == "!!merge" {
				merged = append(merged, item)
				continue
			}
			own := *item // an alias may have several keys
			own.Key, own.At.Line = key.Value, key.Line
			own.Comments = comments(key.HeadComment, y.Content[i+1].LineComment, key.LineComment)
			n.Items = append(n.Items, &own)
		}
		r.merge(n, merged)
	default:
		if n.Kind = Scalar; y.Tag == "!!null" {
			n.Kind = Null
		}
	}
	return n
}

// merge adds the keys of merged maps that a map does not have.
func (r *yamlReader) merge(n *Node, merged []*Node) {
	for _, other := range merged {
		if other.Kind == List {
			r.merge(n, other.Items)
			continue
		}
		for _, item := range other.Items {
			if n.Get(item.Key) == nil {
				n.Items = append(n.Items, item)
			}
		}
	}
}

func comments(texts ...string) (all []string) {
	for _, text := range texts {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(strings.TrimLeft(line, "#/* ")); line != "" {
				all = append(all, strings.TrimSpace(strings.TrimRight(line, "*/ ")))
			}
		}
	}
	return all
}
