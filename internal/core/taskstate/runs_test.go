package taskstate

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func timeAt(hour int) *metav1.MicroTime {
	return &metav1.MicroTime{Time: time.Date(2026, 5, 1, hour, 0, 0, 0, time.UTC)}
}

func TestIsRunning(t *testing.T) {
	for _, c := range []struct {
		name      string
		state     string
		attempts  []v1alpha1.TaskAttempt
		want      bool
		wantWaits bool
	}{
		{"a run goes on", "running", []v1alpha1.TaskAttempt{{Attempt: 2, RunCount: 3}}, true, false},
		{"the next run is about to start", "running", []v1alpha1.TaskAttempt{{Attempt: 2, RunCount: 3, NextRunAt: timeAt(12)}}, false, true},
		{"an earlier attempt was about to", "running", []v1alpha1.TaskAttempt{{Attempt: 1, NextRunAt: timeAt(12)}, {Attempt: 2}}, true, false},
		{"the attempt has ended", "exited", []v1alpha1.TaskAttempt{{Attempt: 2, NextRunAt: timeAt(12)}}, false, false},
		{"the attempt is not in the history", "running", nil, true, false},
	} {
		task := &v1alpha1.Task{Status: v1alpha1.TaskStatus{State: c.state, Attempt: 2, Attempts: c.attempts}}
		if got := IsRunning(task); got != c.want {
			t.Errorf("%s: running is %t", c.name, got)
		}
		if got := NextRunAt(task) != nil; got != c.wantWaits {
			t.Errorf("%s: waits for its next run is %t", c.name, got)
		}
	}
}

func TestLastRunStart(t *testing.T) {
	for _, c := range []struct {
		name string
		in   v1alpha1.TaskAttempt
		want *metav1.MicroTime
	}{
		{"not started", v1alpha1.TaskAttempt{}, nil},
		{"one run", v1alpha1.TaskAttempt{StartedAt: timeAt(1)}, timeAt(1)},
		{"several runs", v1alpha1.TaskAttempt{StartedAt: timeAt(1), Runs: []v1alpha1.TaskRun{{Run: 1, StartedAt: timeAt(1)}, {Run: 2, StartedAt: timeAt(3)}}}, timeAt(3)},
		{"the last could not be started", v1alpha1.TaskAttempt{StartedAt: timeAt(1), Runs: []v1alpha1.TaskRun{{Run: 1, StartedAt: timeAt(1)}, {Run: 2}}}, timeAt(1)},
	} {
		if got := LastRunStart(&c.in); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got, want := HasLastRunStarted(&c.in), c.want != nil && c.name != "the last could not be started"; got != want {
			t.Errorf("%s: started is %t, want %t", c.name, got, want)
		}
	}
}

func TestCountRestarts(t *testing.T) {
	for _, c := range []struct {
		name     string
		restarts int32
		runs     int64
		want     int32
	}{
		{"its agent numbers no runs", 3, 0, 3},
		{"the first run is none", 3, 1, 3},
		{"each further one is", 3, 5, 7},
		{"the count ends at its maximum", 3, math.MaxInt64, math.MaxInt32},
	} {
		s := &v1alpha1.TaskStatus{RestartCount: c.restarts, Attempt: 2, Attempts: []v1alpha1.TaskAttempt{{Attempt: 1, RunCount: 50}, {Attempt: 2, RunCount: c.runs}}}
		if got := CountRestarts(s); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if AddRestarts(s, &s.Attempts[1]); s.RestartCount != c.want {
			t.Errorf("%s: adding them gives %d, want %d", c.name, s.RestartCount, c.want)
		}
	}
	s := &v1alpha1.TaskStatus{RestartCount: 3}
	if AddRestarts(s, nil); s.RestartCount != 3 || CountRestarts(s) != 3 {
		t.Errorf("without an attempt: %d", s.RestartCount)
	}
}
