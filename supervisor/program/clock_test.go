package program

import (
	"reflect"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
)

// allTimes finds every time in v, however deep, but not in configurations.
func allTimes(v reflect.Value, found func(*time.Time)) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		found(v.Addr().Interface().(*time.Time))
	case v.Type() == reflect.TypeFor[*config.Program]():
	case v.Kind() == reflect.Pointer && !v.IsNil():
		allTimes(v.Elem(), found)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			allTimes(v.Index(i), found)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				allTimes(v.Field(i), found)
			}
		}
	}
}

// fill gives v everything that it may have: what pointers point to, and an element of each slice.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*config.Program]() {
			return
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				fillField(v.Field(i))
			}
		}
	}
}

// fillField fills a field that can be set, or what is in it.
func fillField(v reflect.Value) {
	if v.CanSet() || v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
		fill(v)
	}
}

func TestRebaseMovesEveryTimeOfProgram(t *testing.T) {
	p := new(Program)
	fill(reflect.ValueOf(p))
	then := time.Now().Add(-time.Hour).Round(0)
	n := 0
	allTimes(reflect.ValueOf(p), func(t *time.Time) { n++; *t = then.Add(time.Duration(n) * time.Second) })
	now := time.Now()
	p.Rebase(then, now)
	n = 0
	allTimes(reflect.ValueOf(p), func(got *time.Time) {
		n++
		if want := now.Add(time.Duration(n) * time.Second); *got != want {
			t.Errorf("time %d is %s, want %s", n, got, want)
		}
	})
	if n < 50 {
		t.Errorf("there are only %d times", n)
	}
}
