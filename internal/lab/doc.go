// Package lab is the harness of the tests on the built binary. What it shares with `supervisord prove` and the measuring programs is
// in the packages below it, which do not import testing: load, process and plot.
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
// A Supervisord is one supervisord process in a directory of its own; when the test ends, it is stopped, and the test fails
// if anything is left of it. log.go has the sentences of the log and conditions on its lines, client.go clients and load, proc.go
// readers of /proc, configs.go configurations. The test binary is itself the worker that misbehaves on request: behaviour.go has
// its arguments.
package lab
