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
