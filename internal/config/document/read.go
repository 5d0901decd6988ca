package document

import (
	"fmt"
	"io"

	"example.org/supervisord/internal/foreign"
)

// maxFileSize bounds every file that ReadFile reads, in bytes.
const maxFileSize = 1 << 20

// ReadFile reads a regular file of at most maxFileSize bytes. It never waits: it refuses a FIFO or a device without
// opening it.
func ReadFile(path string) ([]byte, error) {
	f, err := foreign.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("read %s: more than %d bytes", path, maxFileSize)
	}
	return data, err
}
