package console

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
)

// restartedTask has an attempt that the manager restarted, and one whose robot waits before its 15th run.
func restartedTask() *v1alpha1.Task {
	t := &v1alpha1.Task{ObjectMeta: metaOf("t1")}
	t.ResourceVersion = "7"
	t.Status = v1alpha1.TaskStatus{State: "running", Reason: "Restarting", Attempt: 2, RestartCount: 1, Attempts: []v1alpha1.TaskAttempt{
		{Attempt: 1, Robot: "r1", State: "failed", ExitCode: new(int32(1)), StartedAt: minute(1), FinishedAt: minute(2)},
		{Attempt: 2, Robot: "r2", State: "running", StartedAt: minute(3), RunCount: 14, NextRunAt: minute(9), Runs: []v1alpha1.TaskRun{
			{Run: 13, StartedAt: minute(4), FinishedAt: minute(5), ExitCode: new(int32(137)), Signal: 9, Reason: "OOMKilled"},
			{Run: 14, StartedAt: minute(6), FinishedAt: minute(7), ExitCode: new(int32(0)), Reason: "Exited"},
		}},
	}}
	return t
}

func checkRuns(t *testing.T, of string, got []attempt) {
	t.Helper()
	if len(got) != 2 || got[0].RunCount != 0 || got[0].Runs != nil || *got[0].ExitCode != 1 || got[1].RunCount != 14 || got[1].ExitCode != nil {
		t.Fatalf("%s: %+v", of, got)
	}
	want := []run{
		{Number: 13, Reason: "OOMKilled", ExitCode: new(int64(137)), Signal: 9, Started: minute(4), Finished: minute(5)},
		{Number: 14, Reason: "Exited", ExitCode: new(int64(0)), Started: minute(6), Finished: minute(7)},
	}
	for i, r := range got[1].Runs { // JSON has no location
		if !r.Started.Equal(want[i].Started) || !r.Finished.Equal(want[i].Finished) {
			t.Errorf("%s: run %d ran from %s to %s", of, r.Number, r.Started, r.Finished)
		}
		got[1].Runs[i].Started, got[1].Runs[i].Finished = want[i].Started, want[i].Finished
	}
	if !reflect.DeepEqual(got[1].Runs, want) {
		t.Errorf("%s: %+v", of, got[1].Runs)
	}
}

func TestGetObject_ListsRuns(t *testing.T) {
	s, _ := newTestServer(&fakeGate{}, restartedTask())
	got := getDetails(t, s, "tasks/n/t1")
	checkRuns(t, "live", got.Attempts)
	if got.Row.Restarts != 14 {
		t.Errorf("%d restarts", got.Row.Restarts)
	}
}

// An attempt that the task has forgotten is only a row of the archive, without runs.
func TestGetObject_ListsRunsOfArchivedTask(t *testing.T) {
	store, err := archive.Open("sqlite:" + filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	o, err := archive.NewObject(restartedTask(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Record(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, _ := newTestServer(&fakeGate{})
	s.archive = store
	checkRuns(t, "archived", getDetails(t, s, "tasks/n/t1").Attempts)

	o.Version, o.Attempts, o.Manifest = o.Version+1, nil, json.RawMessage(`{"kind":"Task"}`)
	if err := store.Record(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if all := getDetails(t, s, "tasks/n/t1").Attempts; len(all) != 2 || all[1].RunCount != 14 || all[1].Runs != nil {
		t.Errorf("forgotten: %+v", all)
	}
}
