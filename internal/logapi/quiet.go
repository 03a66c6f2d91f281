package logapi

import (
	"log"
	"strings"

	"github.com/go-logr/logr"
)

// quiet logs what net/http has to say as details: a client that hangs up in the
// middle of a handshake is no event.
func quiet(l logr.Logger) *log.Logger { return log.New(lines{l.V(1)}, "", 0) }

type lines struct{ log logr.Logger }

// Write implements io.Writer.
func (l lines) Write(p []byte) (int, error) {
	l.log.Info(strings.TrimSpace(string(p)))
	return len(p), nil
}
