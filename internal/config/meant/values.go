package meant

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/output"
)

// writers write a value of another program in TOML, by the names that words.txt has for them; "": they cannot.
var writers = map[string]func(raw any) string{
	"address":      func(raw any) string { return strings.Trim(addresses([]any{raw}), "[]") },
	"command":      command,
	"environment":  Environment,
	"listen":       addresses,
	"milliseconds": func(raw any) string { return duration(fmt.Sprint(raw), "ms") },
	"number":       number,
	"output":       func(raw any) string { return outputOf(fmt.Sprint(raw)) },
	"probe":        probe,
	"seconds":      func(raw any) string { return duration(fmt.Sprint(raw), "s") },
	"size":         sizeOf,
	"table":        func(any) string { return "" },
	"text":         func(raw any) string { return document.Quote(fmt.Sprint(raw)) },
	"url":          url,
	"value":        value,
}

// write writes a value with one of the writers, or as a list of values in words.txt says.
func write(how string, raw any) string {
	if writer, is := writers[how]; is {
		return writer(raw)
	}
	_, lists := words()
	return quoteSome(cmp.Or(lists[how][document.Plain(fmt.Sprint(raw))], lists[how]["*"]))
}

// value writes what supervisord has in the same form.
func value(raw any) string {
	if _, isTable := raw.(map[string]any); isTable {
		return ""
	}
	return document.TOML(raw)
}

// number writes a number of workers. In pm2, max, 0 and -1 are those of the CPUs.
func number(raw any) string {
	if n, err := strconv.Atoi(fmt.Sprint(raw)); err == nil && n > 0 {
		return strconv.Itoa(n)
	}
	return `"auto"`
}

// quoteSome is document.Quote for a text that is not empty.
func quoteSome(text string) string {
	if text == "" {
		return ""
	}
	return document.Quote(text)
}

// sizeWritten is a size as other programs write it: "300M", "1G", "512 mb".
var sizeWritten = pattern.Lazy(`(?i)^(\d+)\s*([KMGT])(i?B)?$`)

func sizeOf(raw any) string {
	if m := sizeWritten().FindStringSubmatch(fmt.Sprint(raw)); m != nil {
		return document.Quote(m[1] + strings.ToUpper(m[2]) + "iB")
	}
	return value(raw)
}

// duration writes a duration; unit is that of a number without one.
func duration(text, unit string) string {
	if text != "" && strings.Trim(text, "0123456789") == "" {
		if whole, is := strings.CutSuffix(text, "000"); is && unit == "ms" && whole != "" {
			return document.Quote(whole + "s")
		}
		return document.Quote(text + unit)
	}
	if _, err := time.ParseDuration(text); err == nil {
		return document.Quote(text)
	}
	return quoteSome(document.DurationMeant(text))
}

// command writes a command: a list, or a command line.
func command(raw any) string {
	switch raw := raw.(type) {
	case string:
		if strings.HasSuffix(raw, ".js") && !strings.Contains(raw, " ") { // pm2's script
			raw = "node " + raw
		}
		return document.Command(raw)
	case []any:
		if len(raw) > 1 && raw[0] == "CMD" { // Docker's health check
			raw = raw[1:]
		}
		return document.TOML(raw)
	}
	return ""
}

// addresses writes a list of addresses: a port, host:port, or the path of a unix socket.
func addresses(raw any) string {
	var list []string
	for _, item := range (document.Value{Raw: raw}).OneOrMore() {
		text := strings.TrimPrefix(strings.TrimPrefix(fmt.Sprint(item.Raw), "http://"), "tcp://")
		if _, err := strconv.ParseUint(text, 10, 16); err == nil {
			text = "127.0.0.1:" + text
		} else if strings.HasPrefix(text, "/") {
			text = "unix:" + text
		}
		if _, err := socket.ParseAddress(text); err != nil {
			return ""
		}
		list = append(list, text)
	}
	return document.TOML(list)
}

// ownURL is a URL of this machine, or a path: a listener of the program is meant.
var ownURL = pattern.Lazy(`^(?:https?://(?:localhost|127\.[0-9.]+|0\.0\.0\.0|\[::1?\])(?::\d+)?)?(/.*)?$`)

// url writes the URL of a probe, at a listener of the program if it is a path or of this machine.
func url(raw any) string {
	text := fmt.Sprint(raw)
	if at := ownURL().FindStringSubmatch(text); at != nil {
		return document.Quote("http://{listener:NAME}" + cmp.Or(at[1], "/"))
	}
	if strings.HasPrefix(text, "http") {
		return document.Quote(text)
	}
	return ""
}

func probe(raw any) string {
	at := url(raw)
	if at == "" {
		return ""
	}
	return `{ method = "http", url = ` + at + " }"
}

// Environment writes variables as a table in TOML: those of a table, or of the lines of Compose and Supervisor; "": raw
// has none.
func Environment(raw any) string {
	variables := map[string]any{}
	if table, is := raw.(map[string]any); is {
		for name, value := range table {
			variables[name] = fmt.Sprint(value)
		}
		return document.TOML(variables)
	}
	var lines []string
	for _, item := range (document.Value{Raw: raw}).OneOrMore() {
		text, _ := item.Raw.(string)
		lines = append(lines, strings.Split(text, ",")...)
	}
	for _, line := range lines {
		name, value, is := strings.Cut(strings.TrimSpace(line), "=")
		if !is {
			return ""
		}
		variables[name] = strings.Trim(value, `"'`)
	}
	return document.TOML(variables)
}

// systemd's prefixes of a path for output.
var filePrefixes = []string{"file:", "append:", "truncate:"}

func outputOf(text string) string {
	for _, prefix := range filePrefixes {
		text = strings.TrimPrefix(text, prefix)
	}
	_, values := words()
	return quoteSome(cmp.Or(values["output"][strings.ToLower(text)], text))
}

// NotFile returns what to write instead of a word that is probably not meant as the name of a file; "": it is.
func NotFile(s string) string {
	word := strings.ToLower(s)
	for _, prefix := range filePrefixes {
		if path, ok := strings.CutPrefix(word, prefix); ok {
			return fmt.Sprintf("write the path alone, %q: lines are appended", s[len(s)-len(path):])
		}
	}
	_, values := words()
	switch meant := values["output"][word]; {
	case word == "stdout" || word == "stderr":
		return `write the same path for stdout and stderr to have both in one file, or "inherit" or "capture"`
	case meant != "":
		return fmt.Sprintf("write %q", meant)
	case strings.ContainsAny(word, "./"):
		return ""
	}
	if near, ok := document.Nearest(word,
		[]string{string(output.Inherit), string(output.Null), string(output.Capture)}); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
