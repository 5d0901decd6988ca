package servers

import "testing"

func TestJavaOnTheInheritedChannelLosesNoRequest(t *testing.T) {
	t.Parallel()
	needs(t, "default-jdk-headless", "/usr/bin/javac")
	s := prepare(t, "java")
	output(t, s.path("java"), "javac", "-d", "classes", "Server.java")
	s.launch()
	lossless(s, "127.0.0.1:8119", 6)
}
