package socket

import (
	"encoding/json"
	"testing"
)

func TestResolvedSurvivesJSON(t *testing.T) {
	for _, s := range []Spec{
		{Program: "web", Name: "http", Address: addr(":80"), PerSlot: true},
		{Address: addr("[::1]:80"), IPv6Only: "false"},
		{Address: addr("localhost:80")},
		{Address: addr("udp:0.0.0.0:53"), Interface: "lo"},
		{Address: addr("unix:/run/../run/web.sock"), Access: Access{User: "root", Mode: 0o660}},
		{Address: addr("unix:@web")},
	} {
		before := resolved(t, s)
		text, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		var after Resolved
		if err := json.Unmarshal(text, &after); err != nil || after != before {
			t.Errorf("%s came back as %+v (%v), not %+v", text, after, err, before)
		}
	}
}

func TestRecordedListenerThatContradictsItselfIsRefused(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"Spec":{"Address":"127.0.0.1:80"},"IP":"127.0.0.2"}`,
		`{"Spec":{"Address":"web.example:80"},"IP":""}`,
		`{"Spec":{"Address":"unix:@x","Mode":384},"IP":""}`,
		`{"Spec":{"Address":"nonsense"},"IP":""}`,
	} {
		var r Resolved
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s was accepted as %+v", text, r)
		}
	}
}
