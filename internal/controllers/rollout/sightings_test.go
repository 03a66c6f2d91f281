package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// running returns a Task of the new revision since noon, whose run started by the clock of its robot.
func running(attempt int32, started time.Time) *v1alpha1.Task {
	t := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{
		Name: "t", UID: "t", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
		Labels:      map[string]string{v1alpha1.LabelRevision: "new"},
		Annotations: map[string]string{v1alpha1.AnnotationRevisedAt: noon.Format(time.RFC3339)},
	}}
	t.Spec.Name = "a"
	t.Status.State, t.Status.Attempt = "running", attempt
	t.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: attempt, Robot: "r", StartedAt: &metav1.MicroTime{Time: started}}}
	return t
}

func TestSightings_Runs(t *testing.T) {
	target := Hashes{"g": {"a": "new"}}
	s := newSightings(noon)
	observe := func(at time.Time, o *v1alpha1.Task) Task {
		s.begin()
		defer s.finish()
		return s.observeTask(at, o, "g", target)
	}
	later := noon.Add
	state := func(o *v1alpha1.Task, to string) *v1alpha1.Task { o.Status.State = to; return o }
	for _, c := range []struct {
		name        string
		at          time.Time
		task        *v1alpha1.Task
		since, seen time.Time
	}{
		{"the first observation trusts the robot", later(time.Hour), running(1, later(time.Minute)), later(time.Minute), later(time.Hour)},
		{"the run goes on", later(2 * time.Hour), running(1, later(time.Minute)), later(time.Minute), later(2 * time.Hour)},
		{"contact is lost", later(3 * time.Hour), state(running(1, noon), "unknown"), later(time.Minute), later(2 * time.Hour)},
		{"contact is back", later(4 * time.Hour), running(1, noon), later(time.Minute), later(4 * time.Hour)},
		{"it waits", later(5 * time.Hour), state(running(2, noon), "pending"), time.Time{}, time.Time{}},
		{"another run counts since it is seen", later(6 * time.Hour), running(2, noon), later(6 * time.Hour), later(6 * time.Hour)},
	} {
		if got := observe(c.at, c.task); !got.RunsSince.Equal(c.since) || !got.SeenRunning.Equal(c.seen) || !got.RevisedAt.Equal(noon) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	for name, started := range map[string]time.Time{"the robot's clock is late": later(-24 * time.Hour), "it is early": later(24 * time.Hour)} {
		s = newSightings(noon)
		if got := observe(later(time.Minute), running(1, started)); got.RunsSince.Before(noon) || got.RunsSince.After(later(time.Minute)) {
			t.Errorf("%s: since %s", name, got.RunsSince)
		}
	}
	if s.begin(); len(s.runs) != 0 {
		t.Error("runs of deleted tasks are kept")
	}
}

func TestSightings_Heartbeats(t *testing.T) {
	s := newSightings(noon)
	for _, c := range []struct {
		name                   string
		at, heartbeat, contact time.Duration // heartbeat 0: not read; contact 0: none
	}{
		{"the first one has not settled", 3 * time.Second, time.Second, 0},
		{"it has, and the next one not", 6 * time.Second, 5 * time.Second, time.Second},
		{"another one waits", 9 * time.Second, 8 * time.Second, time.Second},
		{"the next one has settled", 10 * time.Second, 9 * time.Second, 5 * time.Second},
		{"the last one, too", time.Minute, 9 * time.Second, 9 * time.Second},
		{"the same again", 2 * time.Minute, 9 * time.Second, 9 * time.Second},
		{"an old one", 3 * time.Minute, 2 * time.Minute, 2 * time.Minute},
		{"not read", 4 * time.Minute, 0, 2 * time.Minute},
		{"the server's clock is ahead", 5 * time.Minute, time.Hour, 2 * time.Minute},
		{"it has settled since it was seen", 5*time.Minute + contactSettles, time.Hour, 5 * time.Minute},
		{"the same, later", 2 * time.Hour, time.Hour, 5 * time.Minute},
		{"the server's clock was set back", 3 * time.Hour, time.Minute, time.Minute},
	} {
		u := []Unit{{}}
		if c.heartbeat != 0 {
			u[0].Heartbeat = noon.Add(c.heartbeat)
		}
		s.observeContact(noon.Add(c.at), u)
		want := noon.Add(c.contact)
		if c.contact == 0 {
			want = time.Time{}
		}
		if !u[0].LastContact.Equal(want) {
			t.Errorf("%s: last contact %s, want %s", c.name, u[0].LastContact, want)
		}
	}
}

func TestSightings_NeedsHeartbeat(t *testing.T) {
	runs := []Task{{}, {RunsSince: noon}}
	for _, c := range []struct {
		name  string
		was   unitSighting
		tasks []Task
		want  bool
	}{
		{"the first observation", unitSighting{}, runs, true},
		{"updating", unitSighting{hasState: true, state: StateUpdating}, runs, true},
		{"updated", unitSighting{hasState: true, state: StateUpdated}, runs, false},
		{"no run of the new revision", unitSighting{hasState: true, state: StateUpdating}, runs[:1], false},
	} {
		s := newSightings(noon)
		s.units["r"] = c.was
		u := Unit{Tasks: c.tasks}
		u.Name = "r"
		if got := s.needsHeartbeat(&u); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestSightings_ReturnedUnits(t *testing.T) {
	s := newSightings(noon)
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	for _, c := range []struct {
		name     string
		at, left int
		want     time.Time
	}{
		{"no revert", 0, 0, time.Time{}},
		{"it begins", 1, 3, minute(1)},
		{"none returns", 2, 3, minute(1)},
		{"one returns", 3, 2, minute(3)},
		{"one is back in contact", 4, 3, minute(3)},
		{"it has lost contact again", 5, 2, minute(3)},
		{"all have returned", 6, 0, time.Time{}},
	} {
		if s.recordUnreverted(minute(c.at), c.left); !s.returnedAt.Equal(c.want) {
			t.Errorf("%s: %s, want %s", c.name, s.returnedAt, c.want)
		}
	}
}
