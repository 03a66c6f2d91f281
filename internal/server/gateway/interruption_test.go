package gateway

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// interrupted asks the robot to stop the first attempt, which it may refuse.
func interrupted(s *robotv1.TaskStatus) {
	evicting(s)
	s.Interruption = &robotv1.TaskInterruption{Attempt: 1}
}

// within limits the order to a maintenance window that closes after this time.
func within(left time.Duration) func(*robotv1.TaskStatus) {
	return func(s *robotv1.TaskStatus) { s.Interruption.Until = &metav1.MicroTime{Time: clock.Add(left)} }
}

func withdrawn(s *robotv1.TaskStatus) { s.Interruption.WithdrawnAt = &metav1.MicroTime{Time: clock} }

// The agent stops what a list lacks, so a list must name a task that its robot may go on with.
func TestTaskList_NamesTaskThatMayBeRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		edits  []func(*robotv1.TaskStatus)
		action string
		listed bool
	}{
		{"an eviction that always acts", []func(*robotv1.TaskStatus){evicting}, wire.ActionDelete, false},
		{"an interruption", []func(*robotv1.TaskStatus){interrupted}, wire.ActionDelete, true},
		{"a cancel during it", []func(*robotv1.TaskStatus){interrupted, stopping}, wire.ActionDelete, false},
		{"an eviction that always acts after one that was withdrawn", []func(*robotv1.TaskStatus){interrupted, withdrawn}, wire.ActionDelete, false},
		{"an eviction of a later attempt", []func(*robotv1.TaskStatus){interrupted, func(s *robotv1.TaskStatus) { s.Interruption.Attempt = 0 }}, wire.ActionDelete, false},
	} {
		task := taskIn(lifecycle.TaskRunning, 1, c.edits...)
		if got, listed := wantedAction(task), isListed(task); got != c.action || listed != c.listed {
			t.Errorf("%s: action %q, listed is %v", c.name, got, listed)
		}
	}
}

func TestDownlink_SendsRestOfWindow(t *testing.T) {
	week := int64(wire.MaxWindowSeconds)
	for _, c := range []struct {
		name   string
		edits  []func(*robotv1.TaskStatus)
		want   *wire.Interruption
		sent   bool
		expiry uint32
	}{
		{"an eviction that always acts", []func(*robotv1.TaskStatus){evicting}, nil, true, 30},
		{"no window", []func(*robotv1.TaskStatus){interrupted}, &wire.Interruption{}, true, 30},
		{"an hour is left", []func(*robotv1.TaskStatus){interrupted, within(time.Hour)}, &wire.Interruption{WindowSeconds: 3600}, true, 30},
		{"the broker drops it before the window ends", []func(*robotv1.TaskStatus){interrupted, within(12*time.Second + 1)}, &wire.Interruption{WindowSeconds: 12}, true, 12},
		{"a month is left", []func(*robotv1.TaskStatus){interrupted, within(720 * time.Hour)}, &wire.Interruption{WindowSeconds: week}, true, 30},
		{"less than a second is left", []func(*robotv1.TaskStatus){interrupted, within(time.Second - 1)}, nil, false, 30},
		{"the window is over", []func(*robotv1.TaskStatus){interrupted, within(-time.Hour)}, nil, false, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := taskIn(lifecycle.TaskRunning, 1, c.edits...)
			d, v, _ := newTestDownlink()
			var sent []wire.Dispatch
			d.publish = func(_ int64, _ string, _ *robotv1.Task, payload []byte) bool {
				var m wire.Dispatch
				if err := json.Unmarshal(payload, &m); err != nil {
					t.Fatal(err)
				}
				sent = append(sent, m)
				return true
			}
			v.deliverTask(atVersion(task, 7))
			d.onTaskChanged(task.UID)
			d.sendNext()
			if len(sent) > 0 != c.sent {
				t.Fatalf("sent %+v", sent)
			}
			if expiry := dispatchExpiry(clock, task); expiry == nil || *expiry != c.expiry {
				t.Errorf("it expires after %v, want %d", expiry, c.expiry)
			}
			if c.sent && (sent[0].Action != wire.ActionDelete || (sent[0].Interruption == nil) != (c.want == nil) || c.want != nil && *sent[0].Interruption != *c.want) {
				t.Errorf("sent %+v with %+v, want %+v", sent[0], sent[0].Interruption, c.want)
			}
		})
	}
}

// A robot that was asked to interrupt a task a while ago must receive a cancel or a drain at once.
func TestDownlink_SendsStopThatAlwaysActsAtOnce(t *testing.T) {
	task := taskIn(lifecycle.TaskRunning, 1, interrupted)
	d, v, sent := newTestDownlink()
	v.deliverTask(atVersion(task, 7))
	d.onTaskChanged(task.UID)
	d.sendNext()
	drained := taskIn(lifecycle.TaskRunning, 1, evicting)
	drained.UID = task.UID
	v.deliverTask(atVersion(drained, 8))
	d.onTaskChanged(task.UID)
	if !d.sendNext() || *sent != 2 {
		t.Errorf("sent %d times", *sent)
	}
}

func TestApplyReport_RecordsRefusal(t *testing.T) {
	for _, c := range []struct {
		name  string
		task  *robotv1.Task
		state string
		want  string // status.interruption.refusal
		end   lifecycle.TaskState
	}{
		{"of a task that runs", taskIn(lifecycle.TaskRunning, 1, interrupted), wire.ReportRunning, wire.RefusedHeld, lifecycle.TaskRunning},
		{"of a task that has not started", taskIn(lifecycle.TaskDispatching, 1, interrupted), wire.ReportPending, wire.RefusedHeld, lifecycle.TaskDispatching},
		{"of a task whose start comes with it", taskIn(lifecycle.TaskDispatching, 1, interrupted), wire.ReportRunning, wire.RefusedHeld, lifecycle.TaskRunning},
		{"of an order that was withdrawn", taskIn(lifecycle.TaskRunning, 1, interrupted, withdrawn), wire.ReportRunning, "", lifecycle.TaskRunning},
		{"during a cancel", taskIn(lifecycle.TaskRunning, 1, interrupted, stopping), wire.ReportRunning, "", lifecycle.TaskRunning},
		{"with the end of the attempt", taskIn(lifecycle.TaskRunning, 1, interrupted), wire.ReportFailed, "", lifecycle.TaskExited},
	} {
		r := withAttempt(1, reportOf(c.state, "", 0))
		r.robot, r.Refused = "r1", wire.RefusedHeld
		v := applyReport(clock, c.task, r)
		got := c.task.Status
		if v.status != nil {
			got = *v.status
		}
		if !v.ack || got.State != string(c.end) || got.Interruption.Refusal != c.want {
			t.Errorf("%s: acknowledged is %v, state %s, refusal %q", c.name, v.ack, got.State, got.Interruption.Refusal)
		}
		if c.want != "" && got.Reason != robotv1.ReasonEvicting {
			t.Errorf("%s: the reason became %s", c.name, got.Reason)
		}
	}
}
