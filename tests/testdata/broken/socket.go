package socket

import (
	"os"

	"example.org/supervisord/internal/pattern"
)

// init lets the way "socket" recognise no socket by its name.
func init() {
	if text, _ := os.ReadFile(os.Getenv("BROKEN")); string(text) == "socket\n" {
		exported = pattern.Lazy(`^S\.`)
	}
}
