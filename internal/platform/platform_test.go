package platform

import "testing"

// TestKernelOfTheTestsLacksNothing: what older kernels and sandboxes lack is tested in tests/kernels.
func TestKernelOfTheTestsLacksNothing(t *testing.T) {
	for _, lack := range Lacks() {
		t.Errorf("%+v", lack)
	}
}
