package up

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/standalone/internal/logfile"
)

// openLogs sends what K8s4r's own parts have to say to the file k8s4r.log; what
// goes to s.terminal reaches the user as well when it is a warning.
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

// withoutTime drops the time of a line: a person who reads along has a clock.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
