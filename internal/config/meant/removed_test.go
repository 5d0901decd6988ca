package meant

import "testing"

func TestGenericNameLeavesOutProgramAndIndexes(t *testing.T) {
	for key, want := range map[string]string{
		"program.web.listen[0].nonblock": "program.listen.nonblock",
		`program."a.b".stop.signal`:      "program.stop.signal",
		"supervisor.journal":             "supervisor.journal",
		".program":                       "program",
	} {
		if got := genericName(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
