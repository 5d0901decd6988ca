package graceful_test

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/graceful"
)

func TestConnectionIDsHaveTheLane(t *testing.T) {
	for _, at := range []int{0, 6} {
		t.Setenv("SUPERVISORD_LANE", "13")
		t.Setenv("SUPERVISORD_LANE_BYTE", string(rune('0'+at)))
		ids := must.Get(graceful.NewConnectionIDs())(t)
		seen := map[string]bool{}
		for range 100 {
			id, err := ids.GenerateConnectionID()
			if err != nil || len(id) != 7 || len(id) != ids.ConnectionIDLen() || id[at] != 13 || seen[string(id)] {
				t.Fatalf("ID %x, error %v", id, err)
			}
			seen[string(id)] = true
		}
	}
}

func TestConnectionIDsWithoutSupervisorAreRandom(t *testing.T) {
	t.Setenv("SUPERVISORD_LANE", "")
	ids := must.Get(graceful.NewConnectionIDs())(t)
	var bits [7]byte // that were set in any of the IDs
	for range 200 {
		id, _ := ids.GenerateConnectionID()
		for i := range bits {
			bits[i] |= id[i]
		}
	}
	if bits != [7]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff} {
		t.Errorf("the bits %x change", bits)
	}
}

func TestConnectionIDsRejectInvalidEnvironment(t *testing.T) {
	for name, values := range map[string][2]string{
		"SUPERVISORD_LANE=256":    {"256", "0"},
		"SUPERVISORD_LANE=x":      {"x", "0"},
		"SUPERVISORD_LANE_BYTE=":  {"1", ""},
		"SUPERVISORD_LANE_BYTE=7": {"1", "7"},
	} {
		t.Setenv("SUPERVISORD_LANE", values[0])
		t.Setenv("SUPERVISORD_LANE_BYTE", values[1])
		if _, err := graceful.NewConnectionIDs(); err == nil || !strings.Contains(err.Error(), name+" is invalid") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
