package apiserve

import (
	"log"
	"strings"

	"github.com/go-logr/logr"
)

// newErrorLog logs messages of net/http as details, such as aborted handshakes.
func newErrorLog(l logr.Logger) *log.Logger { return log.New(logLines{l.V(1)}, "", 0) }

type logLines struct{ log logr.Logger }

// Write implements io.Writer.
func (l logLines) Write(p []byte) (int, error) {
	l.log.Info(strings.TrimSpace(string(p)))
	return len(p), nil
}
