package console

import (
	"slices"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestGetObject_ShowsUnconfirmedStops(t *testing.T) {
	task := &v1alpha1.Task{ObjectMeta: metaOf("t1")}
	task.ResourceVersion = "7"
	task.Status = v1alpha1.TaskStatus{State: "canceled", Attempt: 1, Attempts: []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1"}},
		UnconfirmedStop: &v1alpha1.UnconfirmedStop{Robot: "r1", Attempt: 1, Since: *minute(1)}}
	j := &v1alpha1.Job{ObjectMeta: metaOf("j1")}
	j.ResourceVersion, j.Status.State, j.Status.UnconfirmedStops = "8", "canceled", 2
	confirmed := &v1alpha1.Task{ObjectMeta: metaOf("t2")}
	confirmed.ResourceVersion, confirmed.Status.State = "9", "canceled"
	s, _ := newTestServer(&fakeGate{}, task, j, confirmed)
	for path, want := range map[string][]string{
		"tasks/n/t1": {"attempt 1 may still be running on robot r1, which has not confirmed the stop since " + minute(1).UTC().Format("2006-01-02T15:04:05Z")},
		"jobs/n/j1":  {"2 of its tasks may still be running on robots that have not confirmed the stop"},
		"tasks/n/t2": {},
	} {
		if got := getDetails(t, s, path).Why; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
