package handover

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// memfd makes an anonymous file.
func memfd(name string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("cannot create a memfd: %w", err)
	}
	return fd, nil
}

// truncate empties a memfd.
func truncate(fd int) error {
	if err := unix.Ftruncate(fd, 0); err != nil {
		return fmt.Errorf("cannot write to a memfd: %w", err)
	}
	return nil
}

// writeRecord writes a record as it is now, with this head, into an empty file.
func writeRecord(fd int, sequence uint64, head *Record, src Predecessor) error {
	return newLog(fd, sequence).putWhole(head, src.Programs)
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
