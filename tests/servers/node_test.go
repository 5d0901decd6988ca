package servers

import "testing"

func TestNodeLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "nodejs", "/usr/bin/node")
	lossless(open(t, "node"), "127.0.0.1:8115", 6)
}

func TestUnchangedNodeProgramLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "nodejs", "/usr/bin/node")
	lossless(open(t, "node-unchanged"), "127.0.0.1:8122", 6)
}
