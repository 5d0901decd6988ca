package servers

import "testing"

func TestGunicornLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "gunicorn", "/usr/bin/gunicorn")
	lossless(open(t, "gunicorn"), "127.0.0.1:8111", 2)
}

func TestUWSGILosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "uwsgi-core", "/usr/bin/uwsgi-core")
	needs(t, "uwsgi-plugin-python3", "/usr/lib/uwsgi/plugins/python3_plugin.so")
	lossless(open(t, "uwsgi"), "127.0.0.1:8114", 2)
}

// A gunicorn sets GUNICORN_FD for its successor.
func TestGunicornInItsOwnDialectLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "gunicorn", "/usr/bin/gunicorn")
	s := prepare(t, "gunicorn")
	s.replace("gunicorn.toml", "[[program.gunicorn.listen]]", "dialect = \"gunicorn\"\n[[program.gunicorn.listen]]")
	s.launch()
	lossless(s, "127.0.0.1:8111", 2)
}
