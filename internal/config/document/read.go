package document

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxFileSize bounds every file that ReadFile reads, in bytes.
const maxFileSize = 1 << 20

// ReadFile reads a regular file of at most maxFileSize bytes. It never waits: it refuses a FIFO or a device without opening it.
func ReadFile(path string) ([]byte, error) {
	stat, err := os.Stat(path)
	if err == nil {
		err = checkRegular(path, stat.Mode())
	}
	if err != nil {
		return nil, err
	}
	// The path may have been exchanged meanwhile, hence O_NONBLOCK (a FIFO opens at once) and the second check.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if stat, err = f.Stat(); err == nil {
		err = checkRegular(path, stat.Mode())
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("read %s: more than %d bytes", path, maxFileSize)
	}
	return data, err
}

func checkRegular(path string, mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("read %s: it is a directory, not a file", path)
	default:
		return fmt.Errorf("read %s: it is a device, pipe or socket, not a file", path)
	}
}
