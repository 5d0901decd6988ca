package convert

import "testing"

func TestQuadletWithoutAKnownCommandIsCommentedOut(t *testing.T) {
	for text, want := range map[string]string{
		"[Container]\nImage=quay.io/a/b\nPublishPort=8080:80\n": "the command is in the image",
		"[Container]\nImage=quay.io/a/b\nExec=serve --port 80\n": "the image quay.io/a/b may have an " +
			"ENTRYPOINT",
		"[Container]\nImage=quay.io/a/b\nEntrypoint=/app/serve\nExec=--port 80\n": "/app/serve is in the image " +
			"quay.io/a/b, and not on this machine",
		"[Container]\nImage=quay.io/a/b\nExec=--port 80\nEntrypoint=\"/app/serve\"": "= [\"/app/serve\", \"--port\", \"80\"]",
	} {
		r, err := unitFiles(t, "b.container", map[string]string{"b.container": text})
		contains(t, r, err, want)
		if r.Off != 1 {
			t.Errorf("%s: %d off, %d programs\n%s", text, r.Off, r.Programs, r.Text)
		}
	}
}
