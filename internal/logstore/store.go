package logstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/seglog"
)

// Key names the log of one attempt of one task.
type Key struct {
	Namespace string
	// Job is empty for a task that was made by hand.
	Job, Task string
	// UID of the Task: another one may have had its name.
	UID     string
	Attempt int32
}

// Piece is what a robot sends of a log.
type Piece struct {
	// Offset of the first byte, of those that the robot has written.
	Offset int64
	// Lost is how many bytes right before Offset will never come.
	Lost int64
	// Data is whole records.
	Data []byte
	// Last: nothing follows.
	Last bool
}

// State is what a store has of a log.
type State struct {
	// Want is the next of the robot's bytes that is missing.
	Want int64
	// Done: the log has its last piece.
	Done bool
}

// Info is what readers need to know of a log.
type Info struct {
	// Begin and End are the offsets, of the log itself, between which it can be
	// read.
	Begin, End int64
	// Done: nothing follows from the robot.
	Done bool
}

// ErrNotFound means that there is no such log, or that it has been removed.
var ErrNotFound = errors.New("no such log")

// Store keeps logs. Its methods may be called from anywhere; what belongs to one
// log happens one after the other.
type Store interface {
	// Append adds what is new in a piece, and refuses one that leaves a gap. The
	// zero Piece only asks. What it returns is not on the disk before Sync.
	Append(ctx context.Context, k Key, p Piece) (State, error)
	// Say adds a line of the server's own.
	Say(ctx context.Context, k Key, at time.Time, text string) error
	// Sync makes logs survive a loss of power, and returns what of each does. A
	// log that failed is missing, and the error says why.
	Sync(ctx context.Context, ks []Key) (map[Key]State, error)
	// Info fails with ErrNotFound when there is no such log.
	Info(ctx context.Context, k Key) (Info, error)
	// ReadAt reads whole lines from offset on, as seglog.Reader does.
	ReadAt(ctx context.Context, k Key, offset int64, buf []byte) (seglog.Chunk, error)
	// Tidy removes what is too old or too much.
	Tidy(ctx context.Context) error
	// Size is how many bytes of logs there were after the last Tidy. Zero: not known yet.
	Size() int64
	// Close ends the store's work in order.
	Close() error
}

// Limits of what is kept.
type Limits struct {
	// Attempt bounds one log, in bytes; its oldest part goes first. Zero: 64 MiB.
	Attempt int64
	// Total bounds all logs; the oldest go first. Zero: 10 GiB.
	Total int64
	// Age after which a log is removed that nobody writes to. Zero: 30 days.
	Age time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Attempt <= 0 {
		l.Attempt = 64 << 20
	}
	if l.Total <= 0 {
		l.Total = 10 << 30
	}
	if l.Age <= 0 {
		l.Age = 30 * 24 * time.Hour
	}
	return l
}

// segments is the number of files that one log has at the most. Most have one.
const segments = 8

// noJob is the directory of tasks that were made by hand. No Job is called so.
const noJob = "_"

// dir is the log's directory below the root, and the prefix of its files there.
func (k Key) dir() (dir, prefix string, err error) {
	job := k.Job
	if job == "" {
		job = noJob
	}
	for _, part := range []string{k.Namespace, job, k.Task, k.UID} {
		if !safe(part) {
			return "", "", fmt.Errorf("log of %.80q: a part of its name is no name", part)
		}
	}
	return filepath.Join(k.Namespace, job, k.Task), fmt.Sprintf("%s.%d.", k.UID, k.Attempt), nil
}

// safe tells whether a name can be that of a file. A Task that was made by hand
// may name any text as its Job.
func safe(part string) bool {
	return part != "" && len(part) <= 253 && part[0] != '.' && !strings.ContainsAny(part, "/\\\x00")
}

// parseKey is the reverse of Key.dir.
func parseKey(dir, prefix string) (Key, bool) {
	part := strings.Split(strings.Trim(dir, "/"), "/")
	uid, attempt, ok := strings.Cut(strings.TrimSuffix(prefix, "."), ".")
	n, err := strconv.ParseInt(attempt, 10, 32)
	if len(part) != 3 || !ok || err != nil {
		return Key{}, false
	}
	if part[1] == noJob {
		part[1] = ""
	}
	return Key{Namespace: part[0], Job: part[1], Task: part[2], UID: uid, Attempt: int32(n)}, true
}
