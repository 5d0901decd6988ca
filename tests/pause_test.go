package tests

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// waiting asks in the background on a new connection, and fails if there is an answer at once. The function that it
// returns waits for the answer.
func waiting(t *testing.T, m *lab.Supervisord) func() string {
	t.Helper()
	type answer struct {
		text string
		err  error
	}
	c := make(chan answer, 1)
	address := m.Address()
	go func() {
		text, err := lab.Get(address, "/")
		c <- answer{text, err}
	}()
	select {
	case a := <-c:
		t.Errorf("while the program is paused the answer is %q (%v)", a.text, a.err)
		c <- a
	case <-time.After(300 * time.Millisecond): // nothing shows that a connection still waits
	}
	return func() string {
		t.Helper()
		a := <-c
		lab.Must(t, a.err)
		return a.text
	}
}

func TestPausedProgramFinishesWhatItHasAndLetsTheRestWait(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	kept := &lab.Connection{Address: m.Address()}
	defer kept.Close()
	_, err := kept.Get("/")
	lab.Must(t, err)
	slow := lab.Promise(t, m.Address(), "/slow?d=400ms")
	if out := m.CtlOK("pause", "web", "--for", "1m"); !strings.Contains(out, "web: paused for 1m0s at most: ") ||
		!strings.Contains(out, "`supervisord resume web`") {
		t.Errorf("it says %s", out)
	}
	answers := []func() string{waiting(t, m), waiting(t, m)}
	if got := slow(); !strings.Contains(got, "generation=1 ") {
		t.Errorf("%s answers", got)
	}
	if _, err := kept.Get("/"); err != nil {
		t.Errorf("a connection that was there before: %v", err)
	}
	if out := m.CtlOK("status"); !strings.Contains(out, "paused for ") || !strings.Contains(out, "by root") {
		t.Errorf("the status is %s", out)
	}
	m.CtlOK("reload")
	if out := m.CtlOK("resume", "web"); !strings.Contains(out, "web: resumed") {
		t.Errorf("it says %s", out)
	}
	for _, answer := range answers {
		if got := answer(); !strings.Contains(got, "generation=2 ") {
			t.Errorf("%s answers a connection that has waited over a reload", got)
		}
	}
	lab.Ask(t, m.Address(), "/")
	if out := m.CtlOK("status"); strings.Contains(out, "paused") {
		t.Errorf("the status is %s", out)
	}
	m.CtlFails(1, []string{"not paused"}, "resume", "web")
}
