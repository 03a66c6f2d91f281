// Package logfile opens log files that cannot fill a disk.
package logfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	megabytes = 10 // a file
	backups   = 2  // files beside the current one
)

// Open opens a log, readable by its owner only, which starts anew now and
// whenever it has grown to 10 MB, and keeps the two before.
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
