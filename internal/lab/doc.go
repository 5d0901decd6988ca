// Package lab is the harness of the tests on the built binary: packages tests and tests/attack, and whatever else starts a
// supervisord and looks at it from outside.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { lab.Main(m) }
//
// and tests like this one:
//
//	func TestReloadReplacesTheWorker(t *testing.T) {
//		t.Parallel()
//		m := lab.Start(t, lab.Web)
//		m.Serves(1)
//		m.Reload()
//		m.Gone(1)
//	}
//
// The type Supervisord is one supervisord process in a directory of its own; when the test ends, it is ended, and the test fails
// if anything is left of it. Line, Cond and the sentences of the log are in log.go, clients that never retry in client.go,
// readers of /proc in proc.go, configurations in configs.go. The worker that misbehaves as it is told is the test binary itself:
// see behaviour.go for its arguments.
package lab
