package ready

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ControlCommand is a message to einhorn's command socket.
type ControlCommand struct {
	Name string // "worker:ack", …
	PID  int    // of the worker, in its own words
	ID   string // of the request
}

var errNoControlCommand = errors.New("not a message to einhorn")

// ParseControlCommand reads a message: YAML on one line, with %0A for the end of a line and %25 for % (lib/einhorn/client.rb). Of YAML it
// understands JSON, and a mapping of plain or quoted words in either style, which is all that clients write.
func ParseControlCommand(line []byte) (ControlCommand, error) {
	text := strings.TrimSpace(strings.NewReplacer("%0A", "\n", "%25", "%").Replace(string(line)))
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(text, "---"), "..."))
	var object map[string]any
	if json.Unmarshal([]byte(text), &object) == nil && object != nil {
		return fromWords(plainWords(object)), nil
	}
	between := "\n"
	if inner, found := strings.CutPrefix(text, "{"); found {
		text, between = strings.TrimSuffix(inner, "}"), ","
	}
	words := map[string]string{}
	for entry := range strings.SplitSeq(text, between) {
		key, value, found := strings.Cut(strings.TrimSpace(entry)+" ", ": ")
		if !found {
			return ControlCommand{}, errNoControlCommand
		}
		words[strings.TrimPrefix(unquote(key), ":")] = unquote(value)
	}
	return fromWords(words), nil
}

func fromWords(words map[string]string) ControlCommand {
	pid, _ := strconv.Atoi(words["pid"])
	return ControlCommand{words["command"], pid, words["id"]}
}

func plainWords(object map[string]any) map[string]string {
	words := map[string]string{}
	for key, value := range object {
		switch value := value.(type) {
		case string:
			words[key] = value
		case float64:
			words[key] = strconv.FormatFloat(value, 'f', -1, 64)
		}
	}
	return words
}

func unquote(word string) string {
	word = strings.TrimSpace(word)
	for _, quote := range []string{`"`, "'"} {
		if inner, found := strings.CutPrefix(word, quote); found && strings.HasSuffix(inner, quote) {
			return strings.TrimSuffix(inner, quote)
		}
	}
	return word
}

// RefuseControlCommand answers a command that supervisord does not understand, so that the client does not block. It does not wait.
func RefuseControlCommand(fd int, id string) {
	reply := map[string]string{"message": `this is supervisord, which understands {"command":"worker:ack","pid":PID} and nothing else of einhorn`}
	if id != "" {
		reply["request_id"] = id
	}
	text, _ := json.Marshal(reply)
	unix.SendmsgN(fd, append(text, '\n'), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}
