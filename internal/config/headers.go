package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/worker/ready"
)

// readHeaders reads the headers of a probe by HTTP: a table of strings.
func readHeaders(v document.Value, into *map[string]string) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		v.Problem("is "+document.TypeOf(v.Raw)+", not a table", `write such as headers = { Host = "www.example.com" }`)
		return
	}
	headers := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.Child(name)
		var text string
		switch {
		case name == "" || strings.ContainsFunc(name, isNoToken):
			item.Problem("is not the name of a header", "write such as Host or X-Forwarded-Proto")
		case !item.Text(&text):
		case strings.ContainsFunc(text, unicode.IsControl):
			item.Problem("has a character that no header can have", "remove line breaks and other control characters")
		default:
			headers[strings.Clone(name)] = text
		}
	}
	if len(headers) > 0 {
		*into = headers
	}
}

// isNoToken reports whether the name of a header cannot have a character (RFC 9110, section 5.6.2).
func isNoToken(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// readStatuses reads which answers to a probe count: 204, "200-399", or a list of such.
func readStatuses(v document.Value, into *[]ready.StatusRange) {
	var ranges []ready.StatusRange
	for _, item := range v.OneOrMore() {
		first, last, is := strings.Cut(fmt.Sprint(item.Raw), "-")
		if !is {
			last = first
		}
		low, err1 := strconv.Atoi(first)
		high, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || low < 100 || high > 599 || low > high {
			item.Problem(fmt.Sprintf("%v is neither a status of HTTP nor a range of them", item.Raw), `write such as 204, "200-399" or [200, "300-308"]`)
			return
		}
		ranges = append(ranges, ready.StatusRange{First: low, Last: high})
	}
	if len(ranges) == 1 && ranges[0] == ready.Success {
		ranges = nil
	}
	*into = ranges
}
