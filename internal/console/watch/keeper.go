package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	// defaultBehind is twice the delay of any watch. It is less than the history of an API
	// server, which is at least 75 seconds.
	defaultBehind = time.Minute
	// notes is the number of samples in that time.
	notes = 12
)

// positionVersion is the version of the file's format.
const positionVersion = 2

// errOldFormat rejects a file of an earlier version.
var errOldFormat = errors.New("written by an earlier version, whose format this program cannot read; it starts without the file and replaces it")

// kept is the content of the file.
type kept struct {
	// Version of the format: positionVersion.
	Version int `json:"version"`
	// Position is a resourceVersion up to which all changes were published.
	Position uint64 `json:"position,string"`
	// Safe is a later resourceVersion. A reader that received an event after Safe has received
	// all changes up to Position. A reader that disconnected earlier may not have.
	Safe uint64 `json:"safe,string"`
	// Last is the seq of the last event up to Safe.
	Last uint64 `json:"last,string"`
}

// positionKeeper stores in a file the position from which the next instance publishes changes.
type positionKeeper struct {
	file    string // if empty, nothing is stored
	behind  time.Duration
	world   *Store
	loaded  kept
	samples []sample
	failing bool
}

// sample is the resourceVersion that was seen at a time.
type sample struct {
	at   time.Time
	seen uint64
}

// newKeeper reads the file. A file that cannot be read is logged and ignored.
func newKeeper(file string, behind time.Duration, w *Store) *positionKeeper {
	k := &positionKeeper{file: file, behind: cmp.Or(behind, defaultBehind), world: w}
	if file == "" {
		return k
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &k.loaded)
	}
	if err == nil && k.loaded.Version != positionVersion {
		err = errOldFormat
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.log.Error(err, "Changes while this program was stopped are not told", "file", file)
		k.loaded = kept{}
	}
	return k
}

// firstVersion returns the resourceVersion of the first lists. If empty, the current one is used.
func (k *positionKeeper) firstVersion() string {
	if k.loaded.Position == 0 {
		return ""
	}
	return strconv.FormatUint(k.loaded.Position, 10)
}

// knownRange returns Safe and Last of the previous instance. It returns zeros if this instance
// does not continue at its Position.
func (k *positionKeeper) knownRange() (safe, last uint64) {
	if k.world.seen.Load() != k.loaded.Position {
		return 0, 0
	}
	return k.loaded.Safe, k.loaded.Last
}

// runKeeper updates the file until ctx ends.
func (k *positionKeeper) runKeeper(ctx context.Context) {
	every := time.NewTicker(k.behind / notes)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			k.recordSample()
		}
	}
}

// recordSample adds a sample and writes the one from a while ago to the file. While a kind is not
// watched, changes may be missing, so that no samples are taken.
func (k *positionKeeper) recordSample() {
	now := k.world.now()
	if k.world.Live() != nil {
		k.samples = nil
		return
	}
	k.samples = append(k.samples, sample{now, k.world.seen.Load()})
	at := k.findOlder(now.Add(-k.behind))
	if at < 0 {
		return
	}
	next := kept{Version: positionVersion, Position: k.samples[at].seen, Safe: k.samples[k.findOlder(now.Add(-k.behind/2))].seen}
	next.Last = k.world.ring.lastUpTo(next.Safe)
	k.samples = k.samples[at:]
	if k.file == "" || next == k.loaded {
		return
	}
	err := k.writeFile(next)
	if err == nil {
		k.loaded = next
	}
	if err != nil && !k.failing {
		k.world.log.Error(err, "Changes while this program is stopped will not be told")
	}
	k.failing = err != nil
}

// findOlder returns the index of the last sample that is not younger, or a negative number if
// there is none.
func (k *positionKeeper) findOlder(than time.Time) int {
	n := 0
	for n < len(k.samples) && !k.samples[n].at.After(than) {
		n++
	}
	return n - 1
}

// writeFile replaces the file atomically, so that a crash leaves the old or the new one.
func (k *positionKeeper) writeFile(next kept) error {
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(k.file), filepath.Base(k.file)+".*")
	if err != nil {
		return fmt.Errorf("keep the position of events: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), k.file)
	}
	if err != nil {
		return fmt.Errorf("keep the position of events: %w", err)
	}
	return nil
}
