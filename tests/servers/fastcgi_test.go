package servers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"example.org/supervisord/internal/lab/load"
)

// The records of FastCGI (specification 1.0, section 8) that a client needs.
const (
	beginRequest  = 1
	endRequest    = 3
	params        = 4
	stdin         = 5
	stdout        = 6
	responder     = 1 // a role
	keepConn      = 1 // a flag
	recordVersion = 1
	requestID     = 1
)

// fastCGI returns a FastCGI request for a script; the answer must contain want.
func fastCGI(script, query, want string) load.Ask {
	return func(conn *load.Wire, last bool) (bool, error) {
		flags := byte(keepConn)
		if last {
			flags = 0
		}
		var out bytes.Buffer
		record(&out, beginRequest, []byte{0, responder, flags, 0, 0, 0, 0, 0})
		var pairs bytes.Buffer
		for _, kv := range [][2]string{{"REQUEST_METHOD", "GET"}, {"SCRIPT_FILENAME", script}, {"QUERY_STRING", query},
			{"REDIRECT_STATUS", "200"}, {"SERVER_PROTOCOL", "HTTP/1.1"}, {"GATEWAY_INTERFACE", "CGI/1.1"}} {
			pairs.Write([]byte{byte(len(kv[0])), byte(len(kv[1]))}) // none is longer than 127
			pairs.WriteString(kv[0] + kv[1])
		}
		record(&out, params, pairs.Bytes())
		record(&out, params, nil)
		record(&out, stdin, nil)
		if _, err := conn.Write(out.Bytes()); err != nil {
			return false, err
		}
		body, err := fastCGIAnswer(conn.In)
		if err == nil && !strings.Contains(body, want) {
			err = fmt.Errorf("answer without %q: %.80q", want, body)
		}
		return false, err
	}
}

func record(out *bytes.Buffer, kind byte, content []byte) {
	out.Write([]byte{recordVersion, kind, 0, requestID, byte(len(content) >> 8), byte(len(content)), 0, 0})
	out.Write(content)
}

// fastCGIAnswer reads records up to the end of the request, and returns what came on stdout.
func fastCGIAnswer(in io.Reader) (string, error) {
	var body strings.Builder
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return "", err
		}
		content := make([]byte, int(binary.BigEndian.Uint16(head[4:]))+int(head[6]))
		if _, err := io.ReadFull(in, content); err != nil {
			return "", err
		}
		switch head[1] {
		case stdout:
			body.Write(content[:len(content)-int(head[6])])
		case endRequest:
			if len(content) < 5 || content[4] != 0 {
				return "", errors.New("the request was refused")
			}
			return body.String(), nil
		}
	}
}
