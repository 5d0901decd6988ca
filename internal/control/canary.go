package control

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Canary says how large a canary is: a number of workers, or a share of the new connections. In JSON it is a number of workers such as 2,
// or a share such as "5%".
type Canary struct {
	Workers int `json:"-"` // 0: it is a share
	Share   int `json:"-"` // parts of program.Whole; 0: it is a number of workers
}

const isNoCanary = `write a number of workers such as 1, or a share of the new connections such as "5%"`

// ParseCanary reads "2" or "12.5%". Errors: *APIError with a remedy.
func ParseCanary(text string) (c Canary, err error) {
	share, isShare := strings.CutSuffix(text, "%")
	if !isShare {
		if c.Workers, err = strconv.Atoi(text); err != nil {
			return Canary{}, apiError(BadRequest, fmt.Sprintf("%q is not a canary", text), isNoCanary)
		}
		return c, c.check()
	}
	if c.Share, err = parts(share); err != nil {
		return Canary{}, err
	}
	return c, c.checkShare(text)
}

// parts reads a percentage with at most two decimals.
func parts(text string) (int, error) {
	whole, decimals, hasPoint := strings.Cut(text, ".")
	if hasPoint && decimals == "" || len(whole) > len("100") || strings.Trim(whole+decimals, "0123456789") != "" || whole == "" {
		return 0, apiError(BadRequest, fmt.Sprintf("%q is not a share", text+"%"), `write a percentage such as "5%" or "12.5%"`)
	}
	if len(decimals) > 2 {
		return 0, apiError(BadRequest, fmt.Sprintf("the share %q is too precise", text+"%"), "write at most two decimals")
	}
	n, err := strconv.Atoi(whole + (decimals + "00")[:2])
	return n, err
}

func (c Canary) checkShare(text string) error {
	switch {
	case c.Share < 1:
		return apiError(BadRequest, fmt.Sprintf("a canary with a share of %s would be none", text), "write at least 0.01%; to end a canary, use abort")
	case c.Share >= program.Whole:
		return apiError(BadRequest, fmt.Sprintf("%s is not a canary", text), "write at most 99.99%; for everything, leave canary out")
	}
	return nil
}

// check returns an error if there cannot be a canary of this size.
func (c Canary) check() error {
	switch {
	case c.Share != 0:
		return c.checkShare(program.Percentage(c.Share))
	case c.Workers < 1:
		return apiError(BadRequest, "canary must be at least 1", "leave canary out to replace all workers")
	case c.Workers > supervisor.MaxWorkers:
		return apiError(BadRequest, fmt.Sprintf("canary must be at most %d", supervisor.MaxWorkers), "")
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (c Canary) MarshalJSON() ([]byte, error) {
	if c.Share != 0 {
		return json.Marshal(program.Percentage(c.Share))
	}
	return json.Marshal(c.Workers)
}

// UnmarshalJSON implements json.Unmarshaler. Errors: *APIError with a remedy.
func (c *Canary) UnmarshalJSON(text []byte) error {
	var share string
	if json.Unmarshal(text, &c.Workers) == nil {
		return nil // how many is checked with the rest of the body
	}
	err := json.Unmarshal(text, &share)
	if err != nil || !strings.HasSuffix(share, "%") {
		return apiError(BadRequest, fmt.Sprintf("%.40s is not a canary", text), isNoCanary)
	}
	*c, err = ParseCanary(share)
	return err
}
