package naive

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// several is a configuration with this number of workers, and more keys.
func several(config, keys string) string {
	return strings.Replace(config, "[program.web]\n", "[program.web]\n"+keys+"\n", 1)
}

func TestRollingReloadLosesNoRequest(t *testing.T) {
	m := lab.Start(t, several(naive(t, "127.0.0.1:0", "-die"), `workers = 3
reload = { strategy = "rolling", max_surge = 3 }`))
	m.Serves(1)
	s := storm(m.Address())
	s.Count, s.Beside = 100, s.Beside[:1]
	s.Every = 500 * time.Millisecond
	blow(m, s).Lossless(t, "Go, no TERM handler, rolling, HUP twice a second", m.Log)
}
