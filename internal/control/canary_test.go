package control

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

func TestCanaryIsReadAndWrittenExactly(t *testing.T) {
	for text, want := range map[string]Canary{
		"1": {Workers: 1}, "10000": {Workers: 10000}, "5%": {Share: 500}, "12.5%": {Share: 1250}, "0.01%": {Share: 1},
		"99.99%": {Share: 9999}, "33.30%": {Share: 3330}, "05%": {Share: 500},
	} {
		got, err := ParseCanary(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
		written := must.Get(json.Marshal(got))(t)
		var again Canary
		if err := json.Unmarshal(written, &again); err != nil || again != want {
			t.Errorf("%s becomes %s, and that %+v (%v)", text, written, again, err)
		}
	}
	if text, _ := json.Marshal(ReloadBody{Canary: &Canary{Share: 1250}}); !strings.Contains(string(text),
		`"canary":"12.5%"`) {
		t.Errorf("it is sent as %s", text)
	}
}

func TestInvalidCanaryIsRefusedWithARemedy(t *testing.T) {
	for text, words := range map[string]string{
		"": "5%", "x": "5%", "1.5": "5%", "0": "at least 1", "-1": "at least 1", "10001": "at most 10000", "%": "percentage",
		"x%": "percentage", "5 %": "percentage", "5%%": "percentage", "NaN%": "percentage", "-1e300%": "percentage",
		"-5%": "abort", "5.001%": "two decimals", "0%": "abort", "0.001%": "two decimals", "100%": "leave canary out",
		"100.01%": "leave canary out", "1000%": "percentage", "5,5%": "percentage", "٥%": "percentage",
	} {
		c, err := ParseCanary(text)
		refused, ok := errors.AsType[*APIError](err)
		if !ok || refused.Code != BadRequest || !strings.Contains(refused.Error(), words) {
			t.Errorf("%q: %+v, %v; want words about %q", text, c, err, words)
		}
	}
}
