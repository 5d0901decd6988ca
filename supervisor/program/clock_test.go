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

func TestRebaseMovesEveryTimeOfProgram(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.deploy()
	s.send(Reload{})
	s.prepared()
	s.exit(5)
	then := time.Now().Add(-time.Hour).Round(0)
	n := 0
	allTimes(reflect.ValueOf(s.p), func(t *time.Time) { n++; *t = then.Add(time.Duration(n) * time.Second) })
	now := time.Now()
	s.p.Rebase(then, now)
	n = 0
	allTimes(reflect.ValueOf(s.p), func(got *time.Time) {
		n++
		if want := now.Add(time.Duration(n) * time.Second); *got != want {
			t.Errorf("time %d is %s, want %s", n, got, want)
		}
	})
	if n < 20 {
		t.Errorf("there are only %d times", n)
	}
}
