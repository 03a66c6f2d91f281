package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/proc"

	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// stateCuts cuts what each shim has written down at each offset, or at so many drawn
// ones and around all ends of lines, and puts zeros in the place of each of its
// lines, as a disk does whose power went. In the boot after that an agent must run
// none again, whether the server knows that they ran or not; in the same boot, if
// the server knows it.
func stateCuts(t testing.TB, seed uint64, drawn int) figures {
	life := runAndKillAgent(t, seed)
	heirs := newRestarts(t, life)
	r := realrobot.New(t, heirs.broker)
	damaged := damageStates(life, seed, drawn)
	for _, row := range []struct {
		boot    string
		started bool
	}{{"another", false}, {"another", true}, {proc.BootID(), true}} {
		heirs.startAgent(r, diskState{
			what:    fmt.Sprintf("boot %s, started %v", row.boot, row.started),
			journal: journalOfAccepted(t, life, damaged, row.boot), states: damaged, started: row.started, originalTask: originalTask,
		})
	}
	return heirs.checkFigures(map[string]any{"states": len(damaged)})
}

// damageStates returns the states of the life in all the ways that they can be damaged,
// each as one of a task of its own.
func damageStates(l *agentRun, seed uint64, drawn int) map[string][]byte {
	damaged := map[string][]byte{}
	for uid, state := range l.states {
		for _, i := range cutOffsets(state, seed, drawn) {
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

// originalTask returns the UID of the task whose state was damaged.
func originalTask(uid string) string {
	was, _, _ := strings.Cut(uid, "-")
	return was
}

// journalOfAccepted returns a journal in which the attempts were accepted and not started.
func journalOfAccepted(t testing.TB, l *agentRun, states map[string][]byte, boot string) []byte {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var records []journal.Record
	for uid := range states {
		task := l.dispatcher.tasks[originalTask(uid)].task
		task.Metadata = wire.TaskMeta{Name: uid, Namespace: "default", UID: uid}
		records = append(records, journal.Record{Kind: journal.Accepted, UID: uid, Attempt: 1, At: time.Now(), Task: &task, BootID: boot})
	}
	if err := j.Append(records...); err != nil {
		t.Fatal(err)
	}
	return mustRead(t, filepath.Join(dir, "journal"))
}
