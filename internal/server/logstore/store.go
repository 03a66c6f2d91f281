package logstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
)

// Key identifies the log of one attempt of one task.
type Key struct {
	Namespace string
	// Job is empty for a task without a job.
	Job, Task string
	// UID of the Task, because names can be reused.
	UID     string
	Attempt int32
	// OfRuns is set for the records of the attempt's runs. Else it is its output.
	OfRuns bool
}

// Piece is a part of a log from a robot.
type Piece struct {
	// Offset of the first byte, in bytes of the robot.
	Offset int64
	// Lost is how many bytes right before Offset are lost.
	Lost int64
	// Data has complete records.
	Data []byte
	// Last reports whether this is the end of the log.
	Last bool
}

// State is the state of a stored log.
type State struct {
	// NextOffset is the robot's next byte that the store expects.
	NextOffset int64
	// Done reports whether the log is complete.
	Done bool
}

// Info describes a log for readers.
type Info struct {
	// Begin and End are the offsets, in bytes of the log, that can be read.
	Begin, End int64
	// Done reports whether the robot has sent the end.
	Done bool
}

// ErrNotFound means that the log does not exist, or was removed.
var ErrNotFound = errors.New("no such log")

// Store stores logs. Its methods are safe for concurrent use; operations on one log are
// serialized.
type Store interface {
	// Append appends the new part of a piece and rejects one that leaves a gap. The zero Piece only
	// returns the state. Data may be lost until Sync.
	Append(ctx context.Context, k Key, p Piece) (State, error)
	// AppendServerLine adds a line of the server.
	AppendServerLine(ctx context.Context, k Key, at time.Time, text string) error
	// Sync writes logs to stable storage and returns their states. Logs that failed are
	// missing, and the error has the reasons.
	Sync(ctx context.Context, ks []Key) (map[Key]State, error)
	// Info returns ErrNotFound if the log does not exist.
	Info(ctx context.Context, k Key) (Info, error)
	// ReadAt reads complete lines from offset on, as segment.Reader does.
	ReadAt(ctx context.Context, k Key, offset int64, buf []byte) (segment.Chunk, error)
	// PruneLogs removes logs that are too old, and the oldest above the size limit.
	PruneLogs(ctx context.Context) error
	// TotalSize returns the size after the last PruneLogs. Zero: unknown.
	TotalSize() int64
	// Close syncs and closes the store.
	Close() error
}

// Limits bounds the stored logs.
type Limits struct {
	// AttemptBytes bounds one log; its oldest part is removed first. Default: 64 MiB.
	AttemptBytes int64
	// RunBytes bounds the records of the runs of one attempt in the same way. Default: 16 MiB, those of
	// about 80,000 runs, and at most AttemptBytes.
	RunBytes int64
	// TotalBytes bounds all logs; the oldest are removed first. Default: 10 GiB.
	TotalBytes int64
	// MaxAge is the time after the last write at which a log is removed. Default: 30
	// days.
	MaxAge time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.AttemptBytes <= 0 {
		l.AttemptBytes = 64 << 20
	}
	if l.RunBytes <= 0 {
		l.RunBytes = min(16<<20, l.AttemptBytes)
	}
	if l.TotalBytes <= 0 {
		l.TotalBytes = 10 << 30
	}
	if l.MaxAge <= 0 {
		l.MaxAge = 30 * 24 * time.Hour
	}
	return l
}

// maxSegments is the maximum number of files of one log. Most have one.
const maxSegments = 8

// bytesOf bounds a log.
func (l Limits) bytesOf(k Key) int64 {
	if k.OfRuns {
		return l.RunBytes
	}
	return l.AttemptBytes
}

// ofRunsMark is in the names of the files with records of runs.
const ofRunsMark = "runs."

// noJob is the directory of tasks without a job. It is not a valid name of a Job.
const noJob = "_"

// location returns the log's directory below the root, and the prefix of its files.
func (k Key) location() (dir, prefix string, err error) {
	job := k.Job
	if job == "" {
		job = noJob
	}
	for _, part := range []string{k.Namespace, job, k.Task, k.UID} {
		if !isSafeName(part) {
			return "", "", fmt.Errorf("log of %.80q: a part of its name is not a valid file name", part)
		}
	}
	prefix = fmt.Sprintf("%s.%d.", k.UID, k.Attempt)
	if k.OfRuns {
		prefix += ofRunsMark
	}
	return filepath.Join(k.Namespace, job, k.Task), prefix, nil
}

// isSafeName reports whether a name can be a file name. A user may set any text as a
// Task's job name.
func isSafeName(part string) bool {
	return part != "" && len(part) <= 253 && part[0] != '.' && !strings.ContainsAny(part, "/\\\x00")
}

// parseKey is the reverse of Key.location.
func parseKey(dir, prefix string) (Key, bool) {
	part := strings.Split(strings.Trim(dir, "/"), "/")
	prefix, ofRuns := strings.CutSuffix(prefix, "."+ofRunsMark)
	uid, attempt, ok := strings.Cut(strings.TrimSuffix(prefix, "."), ".")
	n, err := strconv.ParseInt(attempt, 10, 32)
	if len(part) != 3 || !ok || err != nil {
		return Key{}, false
	}
	if part[1] == noJob {
		part[1] = ""
	}
	return Key{Namespace: part[0], Job: part[1], Task: part[2], UID: uid, Attempt: int32(n), OfRuns: ofRuns}, true
}
