package servers

import "testing"

func TestUvicornLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "uvicorn", "/usr/bin/uvicorn")
	lossless(open(t, "uvicorn"), "127.0.0.1:8112", 6)
}

func TestHypercornLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "python3-hypercorn", "/usr/bin/hypercorn")
	lossless(open(t, "hypercorn"), "127.0.0.1:8113", 6)
}
