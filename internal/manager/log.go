package manager

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// logConfig is how the manager logs, in the words of KubeRay's operator.
type logConfig struct {
	// encoder is json, or console for text.
	encoder string
	// level is the name of the least important level that is logged, or a verbosity.
	level string
}

func (l *logConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&l.encoder, "log-stdout-encoder", "json", "form of the log: json, or console for text")
	f.StringVar(&l.level, "zap-log-level", "info", "least important log entries that are written: debug, info, error, panic, or a number from 1 (debug) to 127 for more detail")
}

func (l *logConfig) validate() error {
	var errs []error
	if l.encoder != "json" && l.encoder != "console" {
		errs = append(errs, fmt.Errorf("--log-stdout-encoder=%s: must be json or console", l.encoder))
	}
	if _, err := parseLogLevel(l.level); err != nil {
		errs = append(errs, fmt.Errorf("--zap-log-level=%s: %w", l.level, err))
	}
	return errors.Join(errs...)
}

// newHandler returns the handler of the log. The configuration must be valid.
func (l *logConfig) newHandler(to io.Writer) slog.Handler {
	level, err := parseLogLevel(l.level)
	if err != nil {
		panic(err) // validate was not called
	}
	options := &slog.HandlerOptions{Level: level}
	if l.encoder == "console" {
		return slog.NewTextHandler(to, options)
	}
	return slog.NewJSONHandler(to, options)
}

// maxVerbosity is the highest verbosity of logr. Nothing is logged above it.
const maxVerbosity = 127

// parseLogLevel returns the level of a name in any case, or of a verbosity of logr.
func parseLogLevel(text string) (slog.Level, error) {
	switch strings.ToLower(text) {
	case "debug":
		return -1, nil
	case "info":
		return slog.LevelInfo, nil
	case "error":
		return slog.LevelError, nil
	case "panic":
		return slog.LevelError + 1, nil // above all that is logged
	}
	verbosity, err := strconv.Atoi(text)
	if err != nil || verbosity < 1 || verbosity > maxVerbosity {
		return 0, fmt.Errorf("must be debug, info, error, panic or a number from 1 to %d", maxVerbosity)
	}
	return slog.Level(-verbosity), nil
}
