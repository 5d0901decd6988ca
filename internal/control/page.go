package control

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Buttons answers what the page's buttons ask for, on behalf of the holder of its token: POST /v1/reload and the verbs
// of a program, as the control socket answers them, but without a wait. ?generation= is the generation that the page
// showed, of which the verb must still be true.
func Buttons(l requests) func(w http.ResponseWriter, r *http.Request, askedBy string) {
	a := &API{Loop: l}
	mux := http.NewServeMux()
	mux.Handle("/", answering(noPath))
	handle := func(path string, role program.Role, answer answering) {
		mux.Handle("POST "+path, answering(func(w http.ResponseWriter, r *http.Request) error {
			if err := a.stillSo(r, role); err != nil {
				return err
			}
			return answer(w, r)
		}))
	}
	handle("/v1/reload", "", a.reload)
	for _, v := range verbs {
		handle(programPrefix+v.name, v.role, func(w http.ResponseWriter, r *http.Request) error { return v.do(a, w, r) })
	}
	return func(w http.ResponseWriter, r *http.Request, askedBy string) {
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), holderKey{}, askedBy)))
	}
}

// stillSo returns an error if a generation no longer has the role that a person saw.
func (a *API) stillSo(r *http.Request, role program.Role) error {
	shown := r.URL.Query().Get("generation")
	if err := unknownParameter(r, []string{"generation"}); err != nil || shown == "" || role == "" {
		return err
	}
	st, err := ask(r.Context(), a.Loop.Status)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	isShown := func(g supervisor.GenerationStatus) bool { return g.Role == role && strconv.Itoa(g.Number) == shown }
	if p := st.Program(name); p == nil || slices.ContainsFunc(p.Generations, isShown) {
		return nil
	}
	is := map[program.Role]string{program.RoleTrial: "on trial", program.RoleServing: "serving"}[role]
	return apiError(NotNow, fmt.Sprintf("generation %s of program %s is not %s any more", shown, name, is),
		"decide again with what the page shows now")
}
