package control

import (
	"cmp"
	"fmt"
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

// apiTypes are the types of requests and answers; the types of their fields follow from them.
var apiTypes = []any{supervisor.Status{}, eventLine{}, WaitLine{}, ReloadBody{}, accepted{}, ScaleBody{}, SignalBody{},
	AbortBody{}, PromoteBody{}, PauseBody{}, KillBody{}, levelBody{}, LogEntry{}, receiptsAnswer{}, APIError{},
	CommandReport{}}

// bodies are the bodies of requests.
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

// described is the part of an OpenAPI document that the tests read.
type described struct {
	Paths      map[string]struct{ Get, Post, Put *operation }
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	Parameters []struct {
		Name string
		Ref  string `yaml:"$ref"`
	}
	Body struct {
		Content map[string]struct{ Schema schema }
	} `yaml:"requestBody"`
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

func description(t *testing.T) (d described) {
	t.Helper()
	must.Do(t, yaml.Unmarshal(must.Get(os.ReadFile("../../docs/openapi.yaml"))(t), &d))
	return d
}

// agree compares what there is with what is described.
func agree(t *testing.T, there, described map[string]string) {
	t.Helper()
	all := maps.Clone(there)
	maps.Copy(all, described)
	for key := range all {
		if there[key] != described[key] {
			t.Errorf("%s is %q, and described as %q", key, there[key], described[key])
		}
	}
}

func TestDescriptionHasExactlyThePathsAndParameters(t *testing.T) {
	request := func(query []string, body string) string {
		return fmt.Sprintf("query %q, body %s", slices.Sorted(slices.Values(query)), body)
	}
	served, described := map[string]string{}, map[string]string{}
	for _, r := range routes {
		key, body := r.method+" "+r.path, ""
		if bodies[key] != nil {
			body = schemaName(reflect.TypeOf(bodies[key]))
		}
		served[key] = request(r.query, body)
	}
	for path, methods := range description(t).Paths {
		for method, o := range map[string]*operation{"GET": methods.Get, "POST": methods.Post, "PUT": methods.Put} {
			if o == nil {
				continue
			}
			var query []string
			for _, p := range o.Parameters {
				query = append(query, cmp.Or(p.Name, strings.TrimPrefix(p.Ref, "#/components/parameters/")))
			}
			body := ""
			for kind, c := range o.Body.Content {
				body += c.Schema.shape() + strings.TrimPrefix(kind, "application/json")
			}
			described[method+" "+path] = request(query, body)
		}
	}
	agree(t, served, described)
}

func TestDescriptionHasExactlyTheFields(t *testing.T) {
	schemas := description(t).Components.Schemas
	there, described := map[string]string{}, map[string]string{}
	var add func(reflect.Type)
	add = func(of reflect.Type) {
		name := schemaName(of)
		if there[name] != "" {
			return
		}
		there[name] = "a schema"
		for field, f := range fields(of) {
			there[name+"."+field] = shape(f.Type, add)
		}
	}
	for _, v := range apiTypes {
		add(reflect.TypeOf(v))
	}
	for name, s := range schemas {
		described[name] = "a schema"
		for field, f := range properties(schemas, s) {
			described[name+"."+field] = f.shape()
		}
	}
	agree(t, there, described)
}

func TestDescriptionHasEveryOutcomeAndCode(t *testing.T) {
	verdicts, codes := texts(outcomes), texts(slices.Collect(maps.Keys(statusOf)))
	recorded := texts(append(program.ReloadOutcomes(), program.Pending, program.Held))
	schemas := description(t).Components.Schemas
	there, described := map[string]string{}, map[string]string{}
	for name, words := range map[string][]string{
		"Verdict.outcome": verdicts, "ProgramVerdict.outcome": verdicts, "ReloadRecord.outcome": recorded,
		"Receipt.outcome": recorded, "APIError.code": codes,
		"CommandReport.outcome": append(texts([]program.Outcome{Taken, Failed}), verdicts...),
		"CommandReport.code":    append(texts([]Code{NoAnswer, Interrupted, OtherError}), codes...),
	} {
		of, field, _ := strings.Cut(name, ".")
		there[name] = fmt.Sprint(slices.Sorted(slices.Values(words)))
		described[name] = fmt.Sprint(slices.Sorted(slices.Values(properties(schemas, schemas[of])[field].Enum)))
	}
	agree(t, there, described)
}

func texts[T ~string](list []T) (all []string) {
	for _, v := range list {
		all = append(all, string(v))
	}
	return all
}

// schemaName returns the name of a type with an upper-case initial.
func schemaName(t reflect.Type) string { return strings.ToUpper(t.Name()[:1]) + t.Name()[1:] }

// fields returns the fields that encoding/json writes, by their names there: of two with one name the outer one.
func fields(t reflect.Type) map[string]reflect.StructField {
	all := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		other, twice := all[name]
		if !f.Anonymous && f.IsExported() && name != "-" && !(twice && len(other.Index) < len(f.Index)) {
			all[name] = f
		}
	}
	return all
}

// properties returns the properties of a schema and of the schemas that it includes.
func properties(schemas map[string]schema, s schema) map[string]schema {
	all := map[string]schema{}
	maps.Copy(all, s.Properties)
	for _, part := range s.AllOf {
		if part.Ref != "" {
			part = schemas[part.shape()]
		}
		maps.Copy(all, properties(schemas, part))
	}
	return all
}

// shape is what values of a type are in JSON: such as "integer", the name of the schema of a struct, which is added,
// and "string[]".
func shape(t reflect.Type, add func(reflect.Type)) string {
	switch t.Kind() {
	case reflect.Pointer:
		return shape(t.Elem(), add)
	case reflect.Slice:
		return shape(t.Elem(), add) + "[]"
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return "string"
		}
		add(t)
		return schemaName(t)
	case reflect.Map:
		return "object"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "string"
	}
	return "integer"
}

// shape is the shape of the values that a schema describes: of one of several the first.
func (s schema) shape() string {
	list, several := s.Type.([]any)
	switch {
	case len(s.OneOf) > 0:
		return s.OneOf[0].shape()
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, "#/components/schemas/")
	case s.Items != nil:
		return s.Items.shape() + "[]"
	case several:
		return fmt.Sprint(list[0])
	}
	return fmt.Sprint(s.Type)
}
