package handover

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
)

// exactString is a string in a part of a record that is not UTF-8: a variable of an environment, an argument, a path. JSON replaces what
// is wrong in it.
type exactString struct {
	Path  []string // names of fields, indexes and keys of maps, from the part on
	Bytes []byte
}

// lossy reports whether encoding/json may have replaced something: it writes the replacement character as an escape where it has,
// and as it is where it was there before.
func lossy(data []byte) bool { return bytes.Contains(data, []byte(`\ufffd`)) }

// inexact finds the strings that are not UTF-8 in the exported fields of a part.
func inexact(part any) []exactString { return inexactIn(reflect.ValueOf(part), nil) }

func inexactIn(v reflect.Value, path []string) []exactString {
	var found []exactString
	look := func(v reflect.Value, at string) {
		found = append(found, inexactIn(v, append(slices.Clip(path), at))...)
	}
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			found = append(found, exactString{path, []byte(v.String())})
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			found = inexactIn(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				look(v.Field(i), f.Name)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		for i := range v.Len() {
			look(v.Index(i), strconv.Itoa(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if key.Kind() == reflect.String && utf8.ValidString(key.String()) {
				look(v.MapIndex(key), key.String())
			}
		}
	default:
	}
	return found
}

// errNoPlace says that there is no such string: this version does not have it.
var errNoPlace = errors.New("no such string")

// restore puts the string where it belongs.
func (e exactString) restore(part any) error { return e.restoreIn(reflect.ValueOf(part), e.Path) }

func (e exactString) restoreIn(v reflect.Value, path []string) error {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if len(path) == 0 {
		if v.Kind() != reflect.String || !v.CanSet() {
			return errNoPlace
		}
		v.SetString(string(e.Bytes))
		return nil
	}
	switch v.Kind() {
	case reflect.Struct:
		if f, ok := v.Type().FieldByName(path[0]); ok && (f.IsExported() || f.Anonymous) && len(f.Index) == 1 {
			return e.restoreIn(v.FieldByIndex(f.Index), path[1:])
		}
	case reflect.Slice, reflect.Array:
		if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < v.Len() {
			return e.restoreIn(v.Index(i), path[1:])
		}
	case reflect.Map:
		return e.restoreInMap(v, path)
	default:
	}
	return errNoPlace
}

// restoreInMap changes a copy of the value and puts it back: what is in a map cannot be changed there.
func (e exactString) restoreInMap(v reflect.Value, path []string) error {
	if v.Type().Key().Kind() != reflect.String {
		return errNoPlace
	}
	key := reflect.ValueOf(path[0]).Convert(v.Type().Key())
	old := v.MapIndex(key)
	if !old.IsValid() {
		return errNoPlace
	}
	value := reflect.New(v.Type().Elem()).Elem()
	value.Set(old)
	if err := e.restoreIn(value, path[1:]); err != nil {
		return err
	}
	v.SetMapIndex(key, value)
	return nil
}
