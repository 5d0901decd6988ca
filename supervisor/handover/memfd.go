package handover

import (
	"fmt"
	"io"

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
	text, err := io.ReadAll(io.NewSectionReader(preader(fd), 0, maxRecord))
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the record at descriptor %d: %w", fd, err)
	}
	return decode(text)
}

// preader reads a descriptor without owning it.
type preader int

func (fd preader) ReadAt(b []byte, at int64) (int, error) {
	n, err := unix.Pread(int(fd), b, at)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func duplicate(fd int) (int, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot duplicate a descriptor: %w", err)
	}
	return dup, nil
}
