// Package systemd is a service's end of its conversations with systemd: notification (sd_notify(3)), the file-descriptor
// store, the watchdog and the journal's native protocol. It reads no environment of its own accord and changes none:
// what it needs is passed in, usually as os.Getenv.
//
// Where there is no systemd everything here does nothing and returns no error, so that callers need not ask.
package systemd
