package servers

import "testing"

func TestPumaLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "puma", "/usr/bin/puma")
	needs(t, "ruby-sd-notify", "/usr/share/doc/../rubygems-integration/all/specifications/sd_notify-0.1.1.gemspec")
	lossless(open(t, "puma"), "127.0.0.1:8116", 6)
}

func TestUnicornLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "unicorn", "/usr/bin/unicorn")
	lossless(open(t, "unicorn"), "127.0.0.1:8117", 2)
}
