package dialect

import (
	"slices"
	"testing"

	"example.org/supervisord/socket"
)

func TestFDNumbersAreTheRequestedOnesAndTheLowestFreeOnes(t *testing.T) {
	var none socket.FDNumber
	for _, c := range []struct {
		asked []socket.FDNumber
		want  []int
	}{
		{nil, []int{}},
		{[]socket.FDNumber{none, none}, []int{3, 4}},
		{[]socket.FDNumber{socket.FixedFD(0), none, socket.FixedFD(10), none}, []int{0, 3, 10, 4}},
		{[]socket.FDNumber{none, socket.FixedFD(3), socket.FixedFD(4), none}, []int{5, 3, 4, 6}},
	} {
		listeners := make([]socket.Spec, len(c.asked))
		for i, fd := range c.asked {
			listeners[i].FD = fd
		}
		if got := FDNumbers(listeners); !slices.Equal(got, c.want) {
			t.Errorf("%v gives %v, want %v", c.asked, got, c.want)
		}
	}
}
