package control

import (
	"cmp"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// apiTypes lists the types of requests and answers; the types of their fields follow from them.
func apiTypes() []any {
	return []any{supervisor.Status{}, eventLine{}, WaitLine{}, ReloadBody{}, accepted{}, ScaleBody{}, SignalBody{},
		AbortBody{}, PromoteBody{}, PauseBody{}, KillBody{}, levelBody{}, LogEntry{}, receiptsAnswer{}, APIError{},
		CommandReport{}}
}

// schemaName returns the name of a type with an upper-case initial.
func schemaName(t reflect.Type) string { return strings.ToUpper(t.Name()[:1]) + t.Name()[1:] }

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// jsonFields returns the fields that encoding/json writes, including those of embedded structs unless an outer field
// has the same name.
func jsonFields(t reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	names := map[string]bool{}
	for i := range t.NumField() {
		if f := t.Field(i); !f.Anonymous && f.IsExported() && jsonName(f) != "-" {
			fields = append(fields, f)
			names[jsonName(f)] = true
		}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.Anonymous {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		for _, g := range jsonFields(inner) {
			if !names[jsonName(g)] {
				fields = append(fields, g)
			}
		}
	}
	return fields
}

// described is the part of an OpenAPI document that the tests read.
type described struct {
	Paths map[string]map[string]struct {
		Name       string
		Parameters []struct {
			Name, In string
			Ref      string `yaml:"$ref"`
		}
		Body struct {
			Content map[string]struct{ Schema reference }
		} `yaml:"requestBody"`
		Responses map[string]struct {
			Content map[string]struct{ Schema reference }
		}
	}
	Components struct{ Schemas map[string]schema }
}

type reference struct {
	Ref string `yaml:"$ref"`
}

type schema struct {
	Ref        string `yaml:"$ref"`
	Type       any
	OneOf      []schema `yaml:"oneOf"`
	AllOf      []schema `yaml:"allOf"`
	Items      *schema
	Properties map[string]schema
	Enum       []string
}

func description(t *testing.T) described {
	t.Helper()
	text := must.Get(os.ReadFile("../../docs/openapi.yaml"))(t)
	var raw map[string]any
	must.Do(t, yaml.Unmarshal(text, &raw))
	// A path has methods and may have parameters.
	for _, methods := range raw["paths"].(map[string]any) {
		delete(methods.(map[string]any), "parameters")
	}
	text = must.Get(yaml.Marshal(raw))(t)
	var d described
	must.Do(t, yaml.Unmarshal(text, &d))
	return d
}

func TestDescriptionHasExactlyThePathsAndParameters(t *testing.T) {
	d := description(t)
	served := map[string][]string{}
	for _, r := range routes {
		query := append([]string{}, r.query...)
		slices.Sort(query)
		served[r.method+" "+r.path] = query
	}
	for path, methods := range d.Paths {
		for method, m := range methods {
			key := strings.ToUpper(method) + " " + path
			query := []string{}
			for _, p := range m.Parameters {
				query = append(query, cmp.Or(p.Name, strings.TrimPrefix(p.Ref, "#/components/parameters/")))
			}
			slices.Sort(query)
			if want, ok := served[key]; !ok || !slices.Equal(want, query) {
				t.Errorf("%s: described with %q, served with %q (%v)", key, query, want, ok)
			}
			delete(served, key)
			if (len(m.Body.Content) > 0) != (bodies[key] != nil) ||
				len(m.Body.Content) > 0 && m.Body.Content["application/json"].Schema.Ref != "#/components/schemas/"+
					schemaName(reflect.TypeOf(bodies[key])) {
				t.Errorf("%s: the body is described as %+v", key, m.Body)
			}
		}
	}
	if len(served) > 0 {
		t.Errorf("not described: %v", served)
	}
}

// bodies returns the request bodies of the paths.
var bodies = map[string]any{
	"POST /v1/reload":                  ReloadBody{},
	"POST /v1/programs/{name}/scale":   ScaleBody{},
	"POST /v1/programs/{name}/signal":  SignalBody{},
	"POST /v1/programs/{name}/abort":   AbortBody{},
	"POST /v1/programs/{name}/kill":    KillBody{},
	"POST /v1/programs/{name}/promote": PromoteBody{},
	"POST /v1/programs/{name}/pause":   PauseBody{},
	"PUT /v1/log-level":                levelBody{},
}

func TestDescriptionHasExactlyTheFields(t *testing.T) {
	schemas := description(t).Components.Schemas
	done := map[string]bool{}
	var types []reflect.Type
	for _, v := range apiTypes() {
		types = append(types, reflect.TypeOf(v))
	}
	for i := 0; i < len(types); i++ {
		name := schemaName(types[i])
		if done[name] {
			continue
		}
		done[name] = true
		described := properties(schemas, schemas[name])
		var want []string
		for _, f := range jsonFields(types[i]) {
			want = append(want, jsonName(f))
			types = append(types, check(t, name+"."+jsonName(f), f.Type, described[jsonName(f)])...)
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(described)); !slices.Equal(got, want) {
			t.Errorf("%s is described with\n%q, it has\n%q", name, got, want)
		}
	}
	for name := range schemas {
		if !done[name] {
			t.Errorf("%s is described but used nowhere", name)
		}
	}
}

// properties returns the properties of a schema and of the schemas that it includes.
func properties(schemas map[string]schema, s schema) map[string]schema {
	all := maps.Clone(s.Properties)
	if all == nil {
		all = map[string]schema{}
	}
	for _, part := range s.AllOf {
		if name, ok := strings.CutPrefix(part.Ref, "#/components/schemas/"); ok {
			part = schemas[name]
		}
		maps.Copy(all, properties(schemas, part))
	}
	return all
}

func TestDescriptionHasEveryOutcomeAndCode(t *testing.T) {
	schemas := description(t).Components.Schemas
	var words []string
	for _, o := range outcomes {
		words = append(words, string(o))
	}
	recorded := []string{string(program.Pending), string(program.Held)}
	for _, o := range program.ReloadOutcomes() {
		recorded = append(recorded, string(o))
	}
	var codes []string
	for c := range statusOf {
		codes = append(codes, string(c))
	}
	for name, pair := range map[string][2][]string{
		"Verdict.outcome":        {words, schemas["Verdict"].Properties["outcome"].Enum},
		"ProgramVerdict.outcome": {words, schemas["ProgramVerdict"].Properties["outcome"].Enum},
		"ReloadRecord.outcome":   {recorded, schemas["ReloadRecord"].Properties["outcome"].Enum},
		"Receipt.outcome":        {recorded, properties(schemas, schemas["Receipt"])["outcome"].Enum},
		"APIError.code":          {codes, schemas["APIError"].Properties["code"].Enum},
		"CommandReport.outcome": {append([]string{string(Taken), string(Failed)}, words...),
			schemas["CommandReport"].Properties["outcome"].Enum},
		"CommandReport.code": {append([]string{string(NoAnswer), string(Interrupted), string(OtherError)}, codes...),
			schemas["CommandReport"].Properties["code"].Enum},
	} {
		if !slices.Equal(slices.Sorted(slices.Values(pair[0])), slices.Sorted(slices.Values(pair[1]))) {
			t.Errorf("%s: there are %q, described are %q", name, pair[0], pair[1])
		}
	}
}

// check compares a field with its schema, and returns the structs inside the field.
func check(t *testing.T, where string, f reflect.Type, s schema) []reflect.Type {
	t.Helper()
	if f.Kind() == reflect.Pointer {
		f = f.Elem()
	}
	if len(s.OneOf) > 0 {
		s = s.OneOf[0]
	}
	if list, ok := s.Type.([]any); ok {
		s.Type = list[0]
	}
	switch {
	case f == reflect.TypeFor[time.Time]():
		expect(t, where, s.Type, "string")
	case f.Kind() == reflect.Struct:
		if s.Ref != "#/components/schemas/"+schemaName(f) {
			t.Errorf("%s refers to %q, it is a %s", where, s.Ref, schemaName(f))
		}
		return []reflect.Type{f}
	case f.Kind() == reflect.Slice:
		expect(t, where, s.Type, "array")
		if s.Items == nil {
			t.Errorf("%s has no items", where)
			return nil
		}
		return check(t, where+"[]", f.Elem(), *s.Items)
	case f.Kind() == reflect.Map:
		expect(t, where, s.Type, "object")
	case f.Kind() == reflect.String:
		expect(t, where, s.Type, "string")
	case f.Kind() == reflect.Bool:
		expect(t, where, s.Type, "boolean")
	case f.Kind() == reflect.Float64:
		expect(t, where, s.Type, "number")
	default:
		expect(t, where, s.Type, "integer")
	}
	return nil
}

func expect(t *testing.T, where string, got any, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is described as %v, it is %s", where, got, want)
	}
}
