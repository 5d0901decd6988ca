package socket

import (
	"os"

	"example.org/supervisord/internal/pattern"
)

// init lets the way "socket" recognise no socket by its name.
func init() {
	if os.Getenv("BROKEN") == "socket" {
		exported = pattern.Lazy(`^S\.`)
	}
}
