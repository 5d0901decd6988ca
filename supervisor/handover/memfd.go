package handover

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// memfd makes an anonymous file that holds text.
func memfd(name string, text []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("cannot create a memfd: %w", err)
	}
	if err := rewrite(fd, text); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// rewrite replaces what a memfd holds.
func rewrite(fd int, text []byte) error {
	if err := unix.Ftruncate(fd, 0); err != nil {
		return fmt.Errorf("cannot write to a memfd: %w", err)
	}
	for at := 0; at < len(text); {
		n, err := unix.Pwrite(fd, text[at:], int64(at))
		if err != nil {
			return fmt.Errorf("cannot write to a memfd: %w", err)
		}
		at += n
	}
	return nil
}

// maxRecord bounds what is read from a descriptor that claims to hold a record.
const maxRecord = 256 << 20

// readRecord reads the record in a memfd, whatever its offset is.
func readRecord(fd int) (*Record, uint64, error) {
	own, err := duplicate(fd)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(own), "record")
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxRecord))
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the record at descriptor %d: %w", fd, err)
	}
	return decode(text)
}

func duplicate(fd int) (int, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot duplicate a descriptor: %w", err)
	}
	return dup, nil
}
