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

// stateCuts damages the state file of each shim: it truncates the file at each offset, or at so many
// drawn ones and around all ends of lines, and overwrites each line with zeros, as a power failure
// does. The agent must run no task again: in another boot in any case, and in the same boot if the
// server knows that the task ran.
func stateCuts(t testing.TB, seed uint64, drawn int) figures {
	run := runAndKillAgent(t, seed)
	restarts := newRestarts(t, run)
	r := realrobot.NewJoined(t, restarts.broker)
	damaged := damageStates(run, seed, drawn)
	for _, row := range []struct {
		boot    string
		started bool
	}{{"another", false}, {"another", true}, {proc.BootID(), true}} {
		restarts.startAgent(r, diskState{
			description: fmt.Sprintf("boot %s, started %v", row.boot, row.started),
			journal:     journalOfAccepted(t, run, damaged, row.boot), states: damaged, started: row.started, originalTask: originalTask,
		})
	}
	return restarts.checkFigures(map[string]any{"states": len(damaged)})
}

// damageStates returns the shim states of the run, damaged in all ways, each under the UID of a task
// of its own.
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
	original, _, _ := strings.Cut(uid, "-")
	return original
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
