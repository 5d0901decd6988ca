package socket

import (
	"slices"
	"testing"
)

func TestFDNumbersAreThoseAskedForAndTheLowestThatAreFree(t *testing.T) {
	var none FDNumber
	for _, c := range []struct {
		asked []FDNumber
		want  []int
	}{
		{nil, []int{}},
		{[]FDNumber{none, none}, []int{3, 4}},
		{[]FDNumber{FixedFD(0), none, FixedFD(10), none}, []int{0, 3, 10, 4}},
		{[]FDNumber{none, FixedFD(3), FixedFD(4), none}, []int{5, 3, 4, 6}},
	} {
		listeners := make([]Spec, len(c.asked))
		for i, fd := range c.asked {
			listeners[i].FD = fd
		}
		if got := FDNumbers(listeners); !slices.Equal(got, c.want) {
			t.Errorf("%v gives %v, want %v", c.asked, got, c.want)
		}
	}
}
