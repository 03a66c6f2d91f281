// Package logfile opens log files of limited size.
package logfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	megabytes = 10 // per file
	backups   = 2  // in addition to the current file
)

// Open opens a log that only the owner can read. It is rotated now and whenever it reaches 10 MB,
// and the last two files are kept.
func Open(path string) (io.WriteCloser, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	l := &lumberjack.Logger{Filename: path, MaxSize: megabytes, MaxBackups: backups}
	if err := l.Rotate(); err != nil {
		return nil, fmt.Errorf("log %s: %w", path, err)
	}
	return l, nil
}
