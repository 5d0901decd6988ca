// Package systemd is a service's end of its conversations with systemd: notification (sd_notify(3)), the file-descriptor
// store, the watchdog and the journal's native protocol. It neither reads nor changes the environment by itself:
// callers pass in what it needs, usually as os.Getenv.
//
// Without systemd everything here does nothing and returns no error, so that callers need not check.
package systemd
