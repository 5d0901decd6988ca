package control

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// pageLoop is the part of the loop that the page's buttons need.
type pageLoop interface {
	reloader
	Act(ctx context.Context, name string, e program.Event) (supervisor.Ticket, error)
	Status(context.Context) (*supervisor.Status, error)
}

// PageChanges returns what a person with the page's token can do, by the name of its path. Each does the same as the
// API, with parameters in the query: program, and the generation that the page showed, if a person decides about it.
func PageChanges(l pageLoop) map[string]func(w http.ResponseWriter, r *http.Request, askedBy string) {
	act := func(role program.Role, events func(q url.Values, by string) ([]program.Event, error)) func(http.ResponseWriter,
		*http.Request, string) {
		return func(w http.ResponseWriter, r *http.Request, by string) {
			ticket, err := pageAct(r, l, role, func() ([]program.Event, error) { return events(r.URL.Query(), by) })
			if err != nil {
				writeError(w, err)
				return
			}
			respond(w, accepted{[]supervisor.Ticket{ticket}}) //nolint:errcheck // it returns nil
		}
	}
	do := func(role program.Role, of func(q url.Values) (wish, error)) func(http.ResponseWriter, *http.Request, string) {
		return act(role, func(q url.Values, by string) ([]program.Event, error) {
			c, err := of(q)
			if err != nil {
				return nil, err
			}
			e, err := c.event(by)
			return []program.Event{e}, err
		})
	}
	plain := func(role program.Role, events func(by string) []program.Event) func(http.ResponseWriter, *http.Request,
		string) {
		return act(role, func(_ url.Values, by string) ([]program.Event, error) { return events(by), nil })
	}
	return map[string]func(http.ResponseWriter, *http.Request, string){
		"reload":  pageReload(l),
		"promote": do(program.RoleTrial, pagePromotion),
		"abort":   do(program.RoleTrial, func(url.Values) (wish, error) { return AbortBody{Reason: "the page"}, nil }),
		"rollback": plain(program.RoleServing, func(by string) []program.Event {
			return []program.Event{program.Rollback{AskedBy: by}}
		}),
		"pause":  do("", func(q url.Values) (wish, error) { return PauseBody{For: q.Get("for")}, nil }),
		"resume": plain("", func(by string) []program.Event { return []program.Event{program.Unpause{AskedBy: by}} }),
		"scale":  do("", pageScale),
		"start":  plain("", func(by string) []program.Event { return []program.Event{program.Start{AskedBy: by}} }),
		"stop": plain(program.RoleServing,
			func(by string) []program.Event { return []program.Event{program.Stop{AskedBy: by}} }),
		"restart": plain(program.RoleServing, func(by string) []program.Event {
			return []program.Event{program.Stop{AskedBy: by}, program.Start{AskedBy: by}}
		}),
	}
}

// pageReload is POST /v1/reload, but with status 202.
func pageReload(l reloader) func(w http.ResponseWriter, r *http.Request, askedBy string) {
	return func(w http.ResponseWriter, r *http.Request, askedBy string) {
		tickets, err := reload(r.Context(), l, ReloadBody{Programs: r.URL.Query()["program"], Reason: "the page"}, askedBy)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		respond(w, accepted{append([]supervisor.Ticket{}, tickets...)}) //nolint:errcheck // it returns nil
	}
}

func pagePromotion(q url.Values) (wish, error) {
	if q.Get("canary") == "" {
		return PromoteBody{}, nil
	}
	c, err := ParseCanary(q.Get("canary"))
	if err != nil {
		return nil, err
	}
	return PromoteBody{Canary: &c}, nil
}

func pageScale(q url.Values) (wish, error) {
	n, err := strconv.Atoi(q.Get("workers"))
	if err != nil {
		return nil, apiError(BadRequest, fmt.Sprintf("workers: %q is not a number", q.Get("workers")),
			"write a number such as 4")
	}
	return ScaleBody{Workers: n}, nil
}

// pageAct gives a program events, all of them or none. It refuses if the generation in the query no longer has the role
// that the page showed. The ticket is that of the last event.
func pageAct(
	r *http.Request, l pageLoop, role program.Role, events func() ([]program.Event, error),
) (ticket supervisor.Ticket, err error) {
	list, err := events()
	if err != nil {
		return ticket, err
	}
	q, ctx := r.URL.Query(), context.WithoutCancel(r.Context())
	if err := stillSo(ctx, l, q.Get("program"), q.Get("generation"), role); err != nil {
		return ticket, err
	}
	for _, e := range list {
		act := func(ctx context.Context) (supervisor.Ticket, error) { return l.Act(ctx, q.Get("program"), e) }
		if ticket, err = ask(ctx, act); err != nil {
			return ticket, err
		}
	}
	return ticket, nil
}

// stillSo returns an error if a generation no longer has the role that a person saw.
func stillSo(ctx context.Context, l pageLoop, name, shown string, role program.Role) error {
	if shown == "" || role == "" {
		return nil
	}
	st, err := ask(ctx, l.Status)
	if err != nil {
		return err
	}
	isShown := func(g supervisor.GenerationStatus) bool { return g.Role == role && strconv.Itoa(g.Number) == shown }
	if p := st.Program(name); p == nil || slices.ContainsFunc(p.Generations, isShown) {
		return nil
	}
	is := map[program.Role]string{program.RoleTrial: "on trial", program.RoleServing: "serving"}[role]
	return apiError(NotNow, fmt.Sprintf("generation %s of program %s is not %s any more", shown, name, is),
		"decide again with what the page shows now")
}
