package record

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/life"
)

// sample is the log of a reload: where each of its batches ends, and the record that there is then.
type sample struct {
	text  []byte
	ends  []int
	whole []*Record
}

func newSample(t testing.TB) (l sample) {
	t.Helper()
	s, c := newTroupe(), testConfig(2, config.Rolling)
	defer s.close()
	s.programs["web"] = newActor(c)
	s.keep()
	log := s.store.written.log
	l.ends = append(l.ends, int(log.end))
	for _, e := range []program.Event{
		program.Start{Config: c}, program.Prepared{Generation: 1}, program.Did{Worker: 1, Event: life.ReadySaid{}},
		program.Did{Worker: 2, Event: life.ReadySaid{}}, program.Reload{Reason: "HUP"}, program.Prepared{Generation: 2},
		program.Did{Worker: 3, Event: life.ReadySaid{}}, program.Did{Worker: 1, Event: life.Exited{}},
	} {
		s.step("web", e)
		s.keep()
		l.ends = append(l.ends, int(log.end))
	}
	l.text = contents(t, log.fd)
	for i, end := range l.ends {
		r, sequence, err := decode(l.text[:end])
		if err != nil || sequence != uint64(i+1) {
			t.Fatalf("batch %d: sequence %d, %v", i, sequence, err)
		}
		l.whole = append(l.whole, r)
	}
	return l
}

// survives: of a log that was cut off and changed anywhere, the next supervisord reads what was whole before the
// damage, or nothing.
func (l sample) survives(t testing.TB, damaged []byte) {
	good := 0 // bytes before the damage
	for good < len(damaged) && damaged[good] == l.text[good] {
		good++
	}
	last, begins := -1, 0 // the last batch that is whole, and where the next one begins
	for i, end := range l.ends {
		if end <= good {
			last, begins = i, end
		}
	}
	r, sequence, err := decode(damaged)
	is := func(whole *Record) bool { return same(r, whole) }
	switch {
	case last < 0 && errors.Is(err, errNoRecord):
	case last >= 0 && err == nil && sequence == uint64(last+1) && is(l.whole[last]):
	case err == nil && good-begins < headSize && slices.ContainsFunc(l.whole[max(last, 0):], is):
		// no checksum covers the line that has it
	default:
		t.Fatalf("%d of %d bytes are whole: sequence %d, %v", good, len(l.text), sequence, err)
	}
}

func TestLogThatIsCutOffOrDamagedIsWhatWasWholeBefore(t *testing.T) {
	l := newSample(t)
	for n := range l.text {
		if n > l.ends[0] && n < l.ends[len(l.ends)-2] && n%31 > 0 {
			continue // every byte of the first batch and of the last
		}
		l.survives(t, l.text[:n])
		if n%3 == 0 {
			damaged := bytes.Clone(l.text)
			damaged[n] ^= 1
			l.survives(t, damaged)
		}
	}
}

func FuzzRecordDamaged(f *testing.F) {
	l := newSample(f)
	text, ends := l.text, l.ends
	f.Add(uint32(len(text)), uint32(len(text)-5), byte(1), uint32(0), byte(0))
	f.Add(uint32(len(text)-1), uint32(0), byte(0), uint32(0), byte(0))
	f.Add(uint32(ends[3]+20), uint32(ends[2]+3), byte(0x20), uint32(ends[1]+30), byte(1))
	for _, end := range ends {
		f.Add(uint32(len(text)), uint32(end-1), byte(0x80), uint32(end+1), byte(0))
	}
	f.Fuzz(func(t *testing.T, cut, at uint32, flip byte, at2 uint32, flip2 byte) {
		damaged := bytes.Clone(text[:min(int(cut), len(text))])
		for i, flip := range map[uint32]byte{at: flip, at2: flip2} {
			if int(i) < len(damaged) {
				damaged[i] ^= flip
			}
		}
		l.survives(t, damaged)
	})
}

// FuzzRecordParts: whatever parts a record has, it is refused, or usable: it can be written down and read again, and
// its programs continue.
func FuzzRecordParts(f *testing.F) {
	l := newSample(f)
	text, ends := l.text, l.ends
	version := fmt.Sprintf(`{"Version":%d,`, recordVersion) // not in the inputs, which outlive it
	whole := strings.TrimPrefix(string(text[headSize:ends[0]]), version)
	for i := range ends[1:] {
		f.Add(whole, string(text[ends[i]+headSize:ends[i+1]]))
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var all []byte
		for i, data := range []string{version + first, second} {
			batch := append(make([]byte, headSize), data...)
			seal(batch, uint64(i+1))
			all = append(all, batch...)
		}
		r, _, err := decode(all)
		if err != nil {
			return
		}
		for _, p := range writtenAgain(t, r).Programs {
			now := time.Unix(1_000_000, 0)
			p.Core.Inherit(now)
			p.Core.Horizon()
			for range 3 {
				p.Core.Step(now, program.Tick{})
				now = now.Add(time.Hour)
			}
		}
	})
}

// writtenAgain: a record that was read can be written down and read again, and says the same then.
func writtenAgain(t *testing.T, r *Record) *Record {
	t.Helper()
	once, _, err := decode(textOfRecord(t, r, 1))
	if err != nil {
		t.Fatalf("%s: %v", describe(r), err)
	}
	if twice, _, err := decode(textOfRecord(t, once, 1)); err != nil || !same(once, twice) {
		t.Fatalf("%v: %s became %s", err, describe(once), describe(twice))
	}
	return once
}

// FuzzDescriptorNames: a worker is found by the names of its descriptors, whatever its program is called.
func FuzzDescriptorNames(f *testing.F) {
	f.Add("web", uint16(7))
	f.Add("a.b.7.start", uint16(1))
	f.Fuzz(func(t *testing.T, name string, n uint16) {
		number := int(n) + 1
		for _, suffix := range storeSuffixes {
			text := workerName(name, number) + suffix
			if p, w := workerOf(text); p != name || w != number || isRecord(text) || !ours(text) {
				t.Errorf("%q is worker %d of %q", text, w, p)
			}
		}
		p, w := workerOf(name)
		named := slices.ContainsFunc(storeSuffixes[:], func(s string) bool { return name == workerName(p, w)+s })
		if w > 0 && !named && !strings.ContainsAny(name, "+0") {
			t.Errorf("%q is worker %d of %q", name, w, p)
		}
	})
}
