package attack

import (
	"encoding/json"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestPortOfThePageStaysTakenThroughAnUpgrade(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"127.0.0.1:0", "unix:{dir}/page.sock"} {
		m := lab.Start(t, "http = \""+at+"\"\n"+lab.Plain)
		m.Serves(1)
		served := lab.Says("metrics and the page are served")
		first := address(t, m.Await(served))
		lab.Ask(t, first, "/healthz")
		for n := 2; n <= 3; n++ {
			m.Upgrade(lab.Upgraded)
			if again := address(t, m.AwaitN(n, served)[n-1]); again != first { // another one would be chosen for a new socket
				t.Errorf("the page was at %s and is at %s", first, again)
			}
			lab.Ask(t, first, "/healthz")
		}
	}
}

func address(t *testing.T, l lab.Entry) string {
	t.Helper()
	var fields struct{ Address string }
	lab.Must(t, json.Unmarshal([]byte(l.Text), &fields))
	if fields.Address != "" && fields.Address[0] == '/' {
		return "unix:" + fields.Address
	}
	return fields.Address
}
