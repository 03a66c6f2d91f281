package events

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
	// defaultBehind is twice as far as any watch lags, and not further than an API server
	// remembers, which is 75 seconds or more.
	defaultBehind = time.Minute
	// notes are taken so often in that time.
	notes = 12
)

// kept is what the file holds.
type kept struct {
	// Position is a resourceVersion: all that happened up to it was told.
	Position uint64 `json:"position,string"`
	// Safe is a later one: who was told of something after it was told all up to Position before.
	// A reader that had left may not have been.
	Safe uint64 `json:"safe,string"`
	// Last is the seq of the last event up to Safe.
	Last uint64 `json:"last,string"`
}

// keeper keeps in a file from where on a restart tells changes.
type keeper struct {
	file    string // empty: it keeps nothing
	behind  time.Duration
	world   *World
	loaded  kept
	samples []sample
	failing bool
}

// sample is how far the world had come at a time.
type sample struct {
	at   time.Time
	seen uint64
}

// newKeeper reads the file. One that cannot be read is as good as none.
func newKeeper(file string, behind time.Duration, w *World) *keeper {
	k := &keeper{file: file, behind: cmp.Or(behind, defaultBehind), world: w}
	if file == "" {
		return k
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &k.loaded)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.log.Error(err, "Changes while this program was stopped are not told", "file", file)
		k.loaded = kept{}
	}
	return k
}

// from is the resourceVersion of the first lists. Empty: as it is now.
func (k *keeper) from() string {
	if k.loaded.Position == 0 {
		return ""
	}
	return strconv.FormatUint(k.loaded.Position, 10)
}

// known is Safe and Last of the earlier incarnation. Zero: this one begins somewhere else.
func (k *keeper) known() (safe, last uint64) {
	if k.world.seen.Load() != k.loaded.Position {
		return 0, 0
	}
	return k.loaded.Safe, k.loaded.Last
}

// run keeps the file up to date until the context ends.
func (k *keeper) run(ctx context.Context) {
	every := time.NewTicker(k.behind / notes)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			k.tick()
		}
	}
}

// tick notes how far the world has come, and writes how far it had come a while ago. While a
// kind is not watched, nobody knows what it would have told: nothing is noted.
func (k *keeper) tick() {
	now := k.world.now()
	if k.world.Live() != nil {
		k.samples = nil
		return
	}
	k.samples = append(k.samples, sample{now, k.world.seen.Load()})
	at := k.older(now.Add(-k.behind))
	if at < 0 {
		return
	}
	next := kept{Position: k.samples[at].seen, Safe: k.samples[k.older(now.Add(-k.behind/2))].seen}
	next.Last = k.world.ring.lastUpTo(next.Safe)
	k.samples = k.samples[at:]
	if k.file == "" || next == k.loaded {
		return
	}
	err := k.write(next)
	if err == nil {
		k.loaded = next
	}
	if err != nil && !k.failing {
		k.world.log.Error(err, "Changes while this program is stopped will not be told")
	}
	k.failing = err != nil
}

// older is the index of the last sample that is not younger. Negative: there is none.
func (k *keeper) older(than time.Time) int {
	n := 0
	for n < len(k.samples) && !k.samples[n].at.After(than) {
		n++
	}
	return n - 1
}

// write replaces the file at once, so that a crash leaves the old one or the new one.
func (k *keeper) write(next kept) error {
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
