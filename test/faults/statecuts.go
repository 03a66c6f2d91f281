package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/wire"

	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// stateCuts cuts what each shim has written down at each offset, or at so many drawn
// ones and around all ends of lines, and puts zeros in the place of each of its
// lines, as a disk does whose power went. In the boot after that an agent must run
// none again, whether the server knows that they ran or not; in the same boot, if
// the server knows it.
func stateCuts(t testing.TB, seed uint64, drawn int) figures {
	life := liveAndDie(t, seed)
	heirs := newHeirs(t, life)
	r := realrobot.New(t, heirs.broker)
	damaged := damage(life, seed, drawn)
	for _, row := range []struct {
		boot    string
		started bool
	}{{"another", false}, {"another", true}, {proc.BootID(), true}} {
		heirs.take(r, inheritance{
			what:    fmt.Sprintf("boot %s, started %v", row.boot, row.started),
			journal: accepted(t, life, damaged, row.boot), states: damaged, started: row.started, likeness: likeness,
		})
	}
	return heirs.check(map[string]any{"states": len(damaged)})
}

// damage returns the states of the life in all the ways that they can be damaged,
// each as one of a task of its own.
func damage(l *life, seed uint64, drawn int) map[string][]byte {
	damaged := map[string][]byte{}
	for uid, state := range l.states {
		for _, i := range cuts(state, seed, drawn) {
			damaged[fmt.Sprintf("%s-cut-%d", uid, i)] = state[:i]
		}
		at := 0
		for line := range bytes.Lines(state) {
			zeroed := slices.Clone(state)
			clear(zeroed[at : at+len(line)])
			damaged[fmt.Sprintf("%s-zero-%d", uid, at)] = zeroed
			at += len(line)
		}
	}
	return damaged
}

// likeness is the task that a damaged state was of.
func likeness(uid string) string {
	was, _, _ := strings.Cut(uid, "-")
	return was
}

// accepted is a journal that knows of the attempts only that they were accepted.
func accepted(t testing.TB, l *life, states map[string][]byte, boot string) []byte {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var records []journal.Record
	for uid := range states {
		task := l.asker.asked[likeness(uid)].task
		task.Metadata = wire.TaskMeta{Name: uid, Namespace: "default", UID: uid}
		records = append(records, journal.Record{Kind: journal.Accepted, UID: uid, Attempt: 1, At: time.Now(), Task: &task, BootID: boot})
	}
	if err := j.Append(records...); err != nil {
		t.Fatal(err)
	}
	return mustRead(t, filepath.Join(dir, "journal"))
}
