package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// maxPowerPause is the longest time without power.
const maxPowerPause = 500 * time.Millisecond

// unsyncedKinds matches the records of a journal that are not on the disk when the agent goes on.
var unsyncedKinds = regexp.MustCompile(`"kind":"(started|acked|dropped)"`)

// cutUnsynced truncates the journal of a robot without power at a byte of what was not synced, and returns
// the number of bytes that are lost.
func cutUnsynced(t testing.TB, m *realrobot.Machine, draw *rand.Rand) (lost int) {
	path := filepath.Join(m.Dir, "journal")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0 // the agent had not started
	}
	lost = draw.IntN(len(text) - syncedSize(text) + 1)
	if err := os.Truncate(path, int64(len(text)-lost)); err != nil {
		t.Error(err)
	}
	return lost
}

// syncedSize returns the size of a journal without the records at its end that were not synced.
func syncedSize(journal []byte) (synced int) {
	at := 0
	for line := range bytes.Lines(journal) {
		at += len(line)
		if !unsyncedKinds.Match(line) {
			synced = at
		}
	}
	return synced
}

// hasRecord reports whether the journal of a robot has a record about a task with this text.
func hasRecord(m *realrobot.Machine, uid, text string) bool {
	journal, err := os.ReadFile(filepath.Join(m.Dir, "journal"))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(journal) {
		if bytes.Contains(line, []byte(uid)) && bytes.Contains(line, []byte(text)) {
			return true
		}
	}
	return false
}
