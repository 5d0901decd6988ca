package program

import "strings"

// Source is the kind of who asks for something. There are few, so that it can be a label of a metric.
type Source string

// The sources.
const (
	askedControl Source = "control"     // a user, at the control socket
	askedPage    Source = "page"        // the holder of the page's token
	askedSignal  Source = "signal"      // a signal to supervisord
	askedWatch   Source = "watch"       // a file that has changed
	askedTimer   Source = "timer"       // a time in the configuration is over
	askedNobody  Source = "supervisord" // supervisord does it by itself: a first start, a replacement after a crash
)

// Sources lists the sources.
func Sources() []Source {
	return []Source{askedControl, askedPage, askedSignal, askedWatch, askedTimer, askedNobody}
}

// How texts of who asks begin; those of users do not contain ":" (see control.md), and only theirs contain "(uid".
const (
	signalText = "signal "
	watchText  = "watch: "
	timerText  = "timer: "
	tokenText  = "token holder "
)

// BySignal is who asks by a signal that came from this process: "bash (pid 4711, uid 0)".
func BySignal(name, from string) string { return signalText + name + " from " + from }

// ByWatch is who asks because what this path of the configuration leads to has changed.
func ByWatch(path string) string { return watchText + path }

// byTimer is who asks because the time of this key is over.
func byTimer(key string) string { return timerText + key }

// ByTokenHolder is who asks with the page's token from this address.
func ByTokenHolder(from string) string { return tokenText + "from " + from }

// SourceOf returns the kind of who asks. Everything that does not come from the functions above is a user.
func SourceOf(askedBy string) Source {
	user := strings.Contains(askedBy, "(uid ") && !strings.HasPrefix(askedBy, watchText)
	switch {
	case askedBy == "":
		return askedNobody
	case strings.HasPrefix(askedBy, watchText):
		return askedWatch
	case strings.HasPrefix(askedBy, timerText):
		return askedTimer
	case strings.HasPrefix(askedBy, tokenText) && !user:
		return askedPage
	case strings.HasPrefix(askedBy, signalText) && !user:
		return askedSignal
	}
	return askedControl
}
