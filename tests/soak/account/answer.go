package account

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Bye is the message with which a worker asks the client of a WebSocket to close it.
const Bye = "bye"

// Answer is what a worker answers: which request, and who it is.
type Answer struct {
	ID, PID, Generation, Started uint64
	Poison                       bool // of a version that must never serve
}

// Text writes the answer: one line of words, without an end of line.
func (a Answer) Text() []byte {
	return fmt.Appendf(nil, "soak %x %d %d %d %t", a.ID, a.PID, a.Generation, a.Started, a.Poison)
}

// ParseAnswer reads what Text wrote, and nothing else.
func ParseAnswer(text []byte) (a Answer, err error) {
	words := strings.Split(string(text), " ")
	if len(words) == 6 {
		numbers := []*uint64{&a.ID, &a.PID, &a.Generation, &a.Started}
		for i, n := range numbers {
			base := 10
			if i == 0 {
				base = 16
			}
			*n, _ = strconv.ParseUint(words[1+i], base, 64) // what is no number comes out differently below
		}
		a.Poison = words[5] == "true"
	}
	if !bytes.Equal(a.Text(), text) {
		return Answer{}, fmt.Errorf("%.80q is not an answer", text)
	}
	return a, nil
}

// Body returns the body of the download of a request, without end.
func Body(id uint64) io.Reader {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], id)
	return rand.NewChaCha8(seed)
}
