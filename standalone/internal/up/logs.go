package up

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/standalone/internal/logfile"
)

// openLogs writes the logs of K8s4r's parts to k8s4r.log. What is logged to s.terminal at level
// warning or above is also written to stderr.
func (s *system) openLogs(stderr io.Writer) error {
	file, err := logfile.Open(s.dir.Join("logs", "k8s4r.log"))
	if err != nil {
		return err
	}
	toFile := slog.NewTextHandler(file, nil)
	toUser := slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime})
	s.log = slog.New(toFile)
	s.terminal = slog.New(slog.NewMultiHandler(toFile, toUser))
	ctrl.SetLogger(logr.FromSlogHandler(toFile))
	return nil
}

// withoutTime removes the time from a line on the terminal.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
