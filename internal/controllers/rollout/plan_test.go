package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/window"
)

func TestPlan_PendingNamesReasonAndWayOut(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		want   string
	}{
		{"no job", func(w *Input) { w.Job = nil }, "Job j not found in namespace ns; create it"},
		{"a batch job", func(w *Input) { w.Job.Spec.Type = v1alpha1.JobTypeBatch }, "type batch, which has no revisions; create a Rollout of a Job of type"},
		{"a job without a type", func(w *Input) { w.Job.Spec.Type = "" }, "type batch"},
		{"no update", func(w *Input) { w.Job.Spec.Update = nil }, "set its spec.update.strategy to Rollout"},
		{"strategy Immediate", func(w *Input) { w.Job.Spec.Update.Strategy = v1alpha1.UpdateImmediate }, "set its spec.update.strategy to Rollout"},
		{"no revisions yet", func(w *Input) { w.Job.Status.CurrentRevision = 0 }, "has no revisions yet"},
		{"a missing revision", func(w *Input) { w.Target, w.Rollout.Spec.Target.Revision = nil, 7 }, "revision 7 is not the definition of Job j, which is revision 2; run k8s4r job rollback j --to-revision 7"},
		{"the definition has no revision", func(w *Input) { w.Target, w.Job.Status.UpdateRevision = nil, 7 }, "revision 7 of Job j not found; it has 1, 2: create"},
		{"other groups", func(w *Input) { w.Target = Hashes{"h": {"a": "new"}} }, "revision 2 has the groups h, Job j has g"},
		{"robots of a service", func(w *Input) {
			w.Job.Spec.Type, w.Rollout.Spec.Waves[0].RobotSelector = v1alpha1.JobTypeService, map[string]string{"a": "b"}
		}, "is of type service, whose waves are of replicas"},
		{"too many replicas", setReplicas(60_000, 40_001), "spec.taskGroups[].count of Job j: 100001 replicas in all groups, and a Rollout counts at most 100000; reduce"},
		{"a job that is being deleted", func(w *Input) { w.Job.DeletionTimestamp = &metav1.Time{Time: noon} }, "is being deleted"},
	} {
		s := newStory(t, 1, percent("all", 100))
		c.change(&s.w)
		is := Plan(noon, tick, s.w).Status
		if is == nil || is.Phase != v1alpha1.RolloutPending || is.Revision != 0 || !strings.Contains(is.Message, c.want) {
			t.Errorf("%s: %+v, want %q", c.name, is, c.want)
		}
	}
}

// setReplicas returns a change to a service with groups of these sizes.
func setReplicas(sizes ...int32) func(*Input) {
	return func(w *Input) {
		w.Job.Spec.Type, w.Job.Spec.TaskGroups = v1alpha1.JobTypeService, nil
		for i := range sizes {
			g := v1alpha1.TaskGroupDefinition{Name: "g" + string(rune('0'+i))}
			g.Count = &sizes[i]
			w.Job.Spec.TaskGroups = append(w.Job.Spec.TaskGroups, g)
		}
	}
}

func TestPlan_JobThatGrowsTooLargeIsNotCounted(t *testing.T) {
	const running, aborted = v1alpha1.RolloutDesiredRunning, v1alpha1.RolloutDesiredAborted
	for _, c := range []struct{ phase, desired, want, message string }{
		{v1alpha1.RolloutProgressing, running, v1alpha1.RolloutProgressing, "64000000 replicas in all groups"},
		{v1alpha1.RolloutProgressing, aborted, v1alpha1.RolloutAborted, "all units stay as they are"},
		{v1alpha1.RolloutReverting, aborted, v1alpha1.RolloutReverting, "64000000 replicas in all groups"},
		{v1alpha1.RolloutComplete, running, v1alpha1.RolloutComplete, "64000000 replicas in all groups"},
	} {
		s := ended(t, c.phase)
		setReplicas(slices.Repeat([]int32{1_000_000}, 64)...)(&s.w)
		s.w.Rollout.Spec.DesiredState, s.w.Units, s.w.Target, s.w.Current = c.desired, nil, nil, nil
		s.w.Rollout.Generation++
		if s.w.needsRevisions() {
			t.Errorf("%s: the units are observed", c.phase)
		}
		is := Plan(s.now, tick, s.w).Status
		if is == nil || is.Phase != c.want || !strings.Contains(is.Message, c.message) {
			t.Errorf("%s, %s: %+v", c.phase, c.desired, is)
		}
	}
}

func TestPlan_StartFindsRevision(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		phase  string
		want   int64
	}{
		{"the newest", func(*Input) {}, v1alpha1.RolloutProgressing, 2},
		{"what tasks run", func(w *Input) { w.Rollout.Spec.Target.Revision = 1 }, v1alpha1.RolloutProgressing, 1},
		{"paused", func(w *Input) { w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredPaused }, v1alpha1.RolloutPaused, 0},
		{"aborted", func(w *Input) { w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredAborted }, v1alpha1.RolloutAborted, 0},
		{"reverted", func(w *Input) { w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredReverted }, v1alpha1.RolloutReverted, 0},
		{"a newer one", func(w *Input) { w.Newer = "other" }, v1alpha1.RolloutSuperseded, 0},
	} {
		s := newStory(t, 1, percent("all", 100))
		c.change(&s.w)
		is := Plan(noon, tick, s.w).Status
		if is.Phase != c.phase || is.Revision != c.want || (is.FromRevision == 1) != (c.want != 0) || (is.TargetUID == "job") != (c.want != 0) {
			t.Errorf("%s: %+v", c.name, is)
		}
		if meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionComplete) == nil {
			t.Errorf("%s: no condition Complete", c.name)
		}
	}
}

// ended returns a story whose Rollout has ended in a phase.
func ended(t *testing.T, phase string) *story {
	s := newStory(t, 2, percent("all", 100))
	s.settle()
	s.passTime(time.Minute)
	s.w.Rollout.Status.Phase = phase
	return s
}

func TestPlan_DesiredStateAfterTheEnd(t *testing.T) {
	const running, reverted = v1alpha1.RolloutDesiredRunning, v1alpha1.RolloutDesiredReverted
	for _, c := range []struct {
		name, phase, desired string
		current              int64
		want, message        string
	}{
		{"running after an abort", v1alpha1.RolloutAborted, running, 1, v1alpha1.RolloutAborted, "to go on create another Rollout"},
		{"paused after an abort", v1alpha1.RolloutAborted, v1alpha1.RolloutDesiredPaused, 1, v1alpha1.RolloutAborted, "set desiredState to reverted"},
		{"reverted after an abort", v1alpha1.RolloutAborted, reverted, 1, v1alpha1.RolloutReverting, "2 units left to return to revision 1"},
		{"running while reverting", v1alpha1.RolloutReverting, running, 1, v1alpha1.RolloutReverting, "2 units left"},
		{"running after a revert", v1alpha1.RolloutReverted, running, 1, v1alpha1.RolloutReverted, ""},
		{"reverted, the job still has the old revision", v1alpha1.RolloutComplete, reverted, 1, v1alpha1.RolloutReverting, "2 units left"},
		{"reverted, the job has the new revision", v1alpha1.RolloutComplete, reverted, 2, v1alpha1.RolloutComplete, "create a Rollout to revision 1"},
		{"aborted after the end", v1alpha1.RolloutComplete, v1alpha1.RolloutDesiredAborted, 2, v1alpha1.RolloutComplete, "2 of 2 units updated"},
		{"running when superseded", v1alpha1.RolloutSuperseded, running, 1, v1alpha1.RolloutSuperseded, ""},
	} {
		s := ended(t, c.phase)
		s.w.Rollout.Spec.DesiredState, s.w.Job.Status.CurrentRevision = c.desired, c.current
		s.w.Rollout.Generation++
		is := Plan(s.now, tick, s.w).Status
		if is.Phase != c.want || !strings.Contains(is.Message, c.message) {
			t.Errorf("%s: %s: %s", c.name, is.Phase, is.Message)
		}
	}
}

func TestPlan_DesiredStateWhileItRuns(t *testing.T) {
	for desired, want := range map[string]string{
		v1alpha1.RolloutDesiredPaused: v1alpha1.RolloutPaused, v1alpha1.RolloutDesiredAborted: v1alpha1.RolloutAborted, v1alpha1.RolloutDesiredReverted: v1alpha1.RolloutReverted,
	} {
		s := newStory(t, 4, percent("half", 50), percent("all", 100))
		s.settle()
		s.change("desiredState is "+desired, func() { s.w.Rollout.Spec.DesiredState = desired })
		s.passTime(time.Minute)
		s.phase(want)
		s.change("desiredState is running", func() { s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredRunning })
		s.passTime(time.Minute)
		if desired == v1alpha1.RolloutDesiredPaused {
			want = v1alpha1.RolloutComplete
		}
		s.phase(want)
	}
}

func TestPlan_DeletedJobEndsTheRollout(t *testing.T) {
	for _, phase := range []string{v1alpha1.RolloutProgressing, v1alpha1.RolloutComplete, v1alpha1.RolloutAborted} {
		s := ended(t, phase)
		other := *s.w.Job
		other.UID = "another"
		for _, j := range []*v1alpha1.Job{nil, &other} {
			s.w.Job = j
			if is := Plan(s.now, tick, s.w).Status; is.Phase != v1alpha1.RolloutSuperseded || !strings.Contains(is.Message, "Job j was deleted") {
				t.Errorf("%s: %s: %s", phase, is.Phase, is.Message)
			}
		}
	}
}

// If what superseded a Rollout is deleted, the Rollout must not change units back to its revision.
func TestPlan_SupersedesAlsoWhatHasEnded(t *testing.T) {
	for _, phase := range []string{v1alpha1.RolloutProgressing, v1alpha1.RolloutComplete, v1alpha1.RolloutAborted, v1alpha1.RolloutReverted} {
		for why, change := range map[string]func(*Input){
			"Rollout other is newer": func(w *Input) { w.Newer = "other" },
			"update.strategy":        func(w *Input) { w.Job.Spec.Update = nil },
		} {
			s := ended(t, phase)
			s.w.Rollout.Generation++ // so that the status is written
			s.w.Rollout.Status = *Plan(s.now, tick, s.w).Status
			isComplete := meta.IsStatusConditionTrue(s.w.Rollout.Status.Conditions, v1alpha1.ConditionComplete)
			change(&s.w)
			is := Plan(s.now, tick, s.w).Status
			if is.Phase != v1alpha1.RolloutSuperseded || !strings.Contains(is.Message, why) {
				t.Errorf("%s: %s: %s", phase, is.Phase, is.Message)
			}
			if meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionComplete) != isComplete {
				t.Errorf("%s: conditions %+v", phase, is.Conditions)
			}
		}
	}
}

// planUnit returns the state of a unit of a wave that has started.
func planUnit(t *testing.T, change func(*story, *Unit)) (State, Actions) {
	t.Helper()
	s := newStory(t, 1, percent("all", 100))
	s.settle()
	s.now = noon.Add(time.Hour)
	u := s.unit("r00")
	u.HasLast, u.LastContact = false, s.now
	change(s, u)
	actions := Plan(s.now, tick, s.w)
	return actions.States[0], actions
}

func TestPlan_UnitStates(t *testing.T) {
	ago := func(s *story, d time.Duration) time.Time { return s.now.Add(-d) }
	for _, c := range []struct {
		name   string
		change func(*story, *Unit)
		want   State
	}{
		{"healthy", func(*story, *Unit) {}, StateUpdated},
		{"the old revision", func(s *story, u *Unit) { u.Tasks[0].Revision = "old" }, StateWaiting},
		{"the old revision, out of contact", func(s *story, u *Unit) { u.Tasks[0].Revision, u.InContact = "old", false }, StateOutOfContact},
		{"the old revision, being stopped", func(s *story, u *Unit) {
			u.Tasks[0].Revision, u.Tasks[0].IsStopping, u.ChangingSince = "old", true, ago(s, time.Minute)
		}, StateUpdating},
		{"it does not stop", func(s *story, u *Unit) {
			u.Tasks[0].Revision, u.Tasks[0].IsStopping, u.ChangingSince = "old", true, ago(s, 11*time.Minute)
		}, StateFailed},
		{"its robot did not confirm the stop, and is asked again later", func(s *story, u *Unit) {
			u.Tasks[0].Revision, u.Tasks[0].WithdrawnAt, u.ChangingSince = "old", ago(s, time.Second), ago(s, time.Minute)
		}, StateUpdating},
		{"the same for the deadline", func(s *story, u *Unit) {
			u.Tasks[0].Revision, u.Tasks[0].WithdrawnAt, u.ChangingSince = "old", ago(s, time.Second), ago(s, 11*time.Minute)
		}, StateFailed},
		{"a stop was withdrawn before the wave", func(s *story, u *Unit) {
			u.Tasks[0].Revision, u.Tasks[0].WithdrawnAt = "old", noon.Add(-time.Second)
		}, StateWaiting},
		{"a stop was withdrawn because of a hold", func(s *story, u *Unit) {
			u.Tasks[0].Revision, u.Tasks[0].WithdrawnAt, u.BlockedAt = "old", ago(s, time.Minute), ago(s, time.Second)
		}, StateWaiting},
		{"a stop was withdrawn, and the unit is not admitted", func(s *story, u *Unit) {
			u.Tasks[0].Revision, u.Tasks[0].WithdrawnAt = "old", ago(s, time.Second)
			s.w.Rollout.Status.Waves[0].AdmittedBound, s.w.Rollout.Status.Waves[0].FinishedAt = 0, nil
			s.w.Rollout.Spec.DesiredState, s.w.Rollout.Status.Phase = v1alpha1.RolloutDesiredPaused, v1alpha1.RolloutProgressing
		}, StateWaiting},
		{"no task", func(s *story, u *Unit) { u.Tasks = nil }, StateWaiting},
		{"one task of two", func(s *story, u *Unit) { s.w.Target["g"]["b"] = "new" }, StateFailed},
		{"one task of two, for a short time", func(s *story, u *Unit) { s.w.Target["g"]["b"], u.Tasks[0].RevisedAt = "new", ago(s, time.Minute) }, StateUpdating},
		{"it runs for a short time", func(s *story, u *Unit) {
			u.Tasks[0].RunsSince = ago(s, time.Second)
			u.Tasks[0].RevisedAt = ago(s, time.Minute)
		}, StateUpdating},
		{"it runs for the time of the group", func(s *story, u *Unit) {
			s.w.Job.Spec.TaskGroups[0].Update = &v1alpha1.Update{MinHealthyTime: v1alpha1.NewDuration(0)}
			u.Tasks[0].RunsSince = s.now
		}, StateUpdated},
		{"it runs for less than the time of the wave", func(s *story, u *Unit) {
			s.w.Rollout.Spec.Waves[0].HealthyFor = v1alpha1.NewDuration(2 * time.Minute)
			u.Tasks[0].RunsSince, u.Tasks[0].RevisedAt = ago(s, time.Minute), ago(s, time.Minute)
		}, StateUpdating},
		{"its robot is out of contact after it was healthy", func(s *story, u *Unit) {
			u.InContact, u.Tasks[0].State, u.Tasks[0].SeenRunning = false, lifecycle.TaskUnknown, u.Tasks[0].RunsSince.Add(time.Minute)
		}, StateUpdated},
		{"its robot is out of contact before it was healthy", func(s *story, u *Unit) {
			u.InContact, u.Tasks[0].State, u.Tasks[0].SeenRunning = false, lifecycle.TaskUnknown, u.Tasks[0].RunsSince
			u.Tasks[0].RevisedAt = ago(s, time.Minute)
		}, StateUpdating},
		{"its robot is out of contact for the deadline before it was healthy", func(s *story, u *Unit) {
			u.InContact, u.Tasks[0].State, u.Tasks[0].SeenRunning = false, lifecycle.TaskUnknown, u.Tasks[0].RunsSince
		}, StateFailed},
		{"its robot lost contact when it was given the new revision", func(s *story, u *Unit) {
			u.InContact, u.Tasks[0].State, u.Tasks[0].RunsSince = false, lifecycle.TaskDispatching, time.Time{}
		}, StateFailed},
		{"its robot was not in contact after it should be healthy", func(s *story, u *Unit) {
			u.LastContact = u.Tasks[0].RunsSince.Add(9 * time.Second)
		}, StateUpdating},
		{"its robot was in contact when it became healthy", func(s *story, u *Unit) {
			u.LastContact = u.Tasks[0].RunsSince.Add(10 * time.Second)
		}, StateUpdated},
		{"its robot was never in contact, and a report is enough", func(s *story, u *Unit) {
			s.w.Job.Spec.TaskGroups[0].Update = &v1alpha1.Update{MinHealthyTime: v1alpha1.NewDuration(0)}
			u.LastContact = time.Time{}
		}, StateUpdated},
		{"its robot is cordoned, was not in contact after it should be healthy, and the deadline has passed", func(s *story, u *Unit) {
			u.LastContact, u.InContact = u.Tasks[0].RunsSince, false
		}, StateFailed},
		{"its robot is out of contact, and was not after it should be healthy", func(s *story, u *Unit) {
			u.InContact, u.Tasks[0].State, u.Tasks[0].SeenRunning = false, lifecycle.TaskUnknown, u.Tasks[0].RunsSince.Add(time.Minute)
			u.LastContact, u.Tasks[0].RevisedAt = u.Tasks[0].RunsSince, ago(s, time.Minute)
		}, StateUpdating},
		{"its robot was not in contact, and a task is missing after the deadline", func(s *story, u *Unit) {
			s.w.Target["g"]["b"], u.LastContact = "new", u.Tasks[0].RunsSince
		}, StateFailed},
		{"a task that ends itself runs", func(s *story, u *Unit) { u.Tasks[0].EndsItself, u.Tasks[0].RevisedAt = true, ago(s, time.Minute) }, StateUpdating},
		{"a task that ends itself has completed", func(s *story, u *Unit) { u.Tasks[0].EndsItself, u.Tasks[0].State = true, lifecycle.TaskCompleted }, StateUpdated},
		{"a failed task", func(s *story, u *Unit) { u.Tasks[0].State = lifecycle.TaskFailed }, StateFailed},
		{"a failed task, out of contact", func(s *story, u *Unit) { u.Tasks[0].State, u.InContact = lifecycle.TaskFailed, false }, StateFailed},
		{"a failed task of the old revision", func(s *story, u *Unit) { u.Tasks[0].State, u.Tasks[0].Revision = lifecycle.TaskFailed, "old" }, StateWaiting},
		{"not healthy in time", func(s *story, u *Unit) { u.Tasks[0].State = lifecycle.TaskPending }, StateFailed},
		{"not healthy in time, out of contact", func(s *story, u *Unit) { u.Tasks[0].State, u.InContact = lifecycle.TaskPending, false }, StateOutOfContact},
		{"not healthy in time, the job is paused", func(s *story, u *Unit) { u.Tasks[0].State, s.w.Job.Status.State = lifecycle.TaskPaused, "paused" }, StateUpdating},
		{"not healthy in time, the job was paused", func(s *story, u *Unit) {
			u.Tasks[0].State = lifecycle.TaskPending
			s.w.Job.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSuspended, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(ago(s, time.Minute))}}
		}, StateUpdating},
		{"it was healthy until now", func(s *story, u *Unit) {
			u.Tasks[0].State, u.HasLast, u.Last = lifecycle.TaskPending, true, StateUpdated
		}, StateUpdating},
		{"it was out of contact until now", func(s *story, u *Unit) {
			u.Tasks[0].State, u.HasLast, u.Last = lifecycle.TaskPending, true, StateOutOfContact
		}, StateUpdating},
		{"it was healthy until a minute ago", func(s *story, u *Unit) {
			u.Tasks[0].State, u.HasLast, u.Last, u.ChangingSince = lifecycle.TaskPending, true, StateUpdating, ago(s, time.Minute)
		}, StateUpdating},
		{"a task has another revision, and the manager has started a minute ago", func(s *story, u *Unit) {
			s.w.ObservedSince = ago(s, 2*time.Minute)
			u.Tasks = append(u.Tasks, Task{Name: "b", Group: "g", Task: "b", Revision: "old", State: lifecycle.TaskRunning, IsStopping: true})
		}, StateUpdating},
		{"the same after the deadline", func(s *story, u *Unit) {
			s.w.ObservedSince = ago(s, 11*time.Minute)
			u.Tasks = append(u.Tasks, Task{Name: "b", Group: "g", Task: "b", Revision: "old", State: lifecycle.TaskRunning, IsStopping: true})
		}, StateFailed},
		{"the manager has just started", func(s *story, u *Unit) {
			u.Tasks[0].State, s.w.ObservedSince = lifecycle.TaskPending, ago(s, time.Second)
		}, StateUpdating},
	} {
		if got, _ := planUnit(t, c.change); got != c.want {
			t.Errorf("%s: state %d, want %d", c.name, got, c.want)
		}
	}
}

func TestPlan_FailureOfAnInitTaskIsNamed(t *testing.T) {
	_, actions := planUnit(t, func(s *story, u *Unit) {
		s.w.Target["g"]["b"] = "new"
		u.Tasks[0].State, u.Tasks[0].Reason = lifecycle.TaskFailed, v1alpha1.ReasonInitTaskFailed
		u.Tasks = append(u.Tasks, Task{Name: "init", Group: "g", Task: "b", Revision: "new", State: lifecycle.TaskFailed, Reason: "ExitCode", Message: strings.Repeat("m", 1000)})
	})
	f := actions.Status.FailedUnits
	if len(f) != 1 || f[0].Task != "init" || f[0].Reason != "ExitCode" || len(f[0].Message) > maxFailureMessage {
		t.Errorf("%+v", f)
	}
}

func TestPlan_CountsEachUnitOnce(t *testing.T) {
	s := newStory(t, 300, percent("half", 50), percent("all", 100))
	for i := range s.w.Units {
		s.broken[s.w.Units[i].Name] = i%2 == 0
		s.w.Units[i].InContact = i%7 != 0
		if i%11 == 0 {
			s.w.Units[i].Tasks[0].Robot = &window.Robot{Holds: []v1alpha1.RobotHold{{ID: "1"}}}
		}
		if i%13 == 0 {
			s.w.Units[i].Tasks[0].Robot = &window.Robot{Namespace: "ns"}
		}
	}
	s.w.Calendar = window.NewCalendar([]v1alpha1.MaintenanceWindow{newWindow("13")})
	s.settle()
	s.passTime(30 * time.Second)
	is := s.w.Rollout.Status
	for _, c := range append([]v1alpha1.RolloutCounts{is.Counts}, is.Waves[0].RolloutCounts) {
		if c.OutsideWindow == 0 || c.Held == 0 || c.Waiting+c.OutOfContact+c.OutsideWindow+c.Held+c.Updating+c.Updated+c.Failed != c.Total || c.Total == 0 {
			t.Errorf("%+v", c)
		}
	}
	s.passTime(2 * time.Hour)
	is = s.w.Rollout.Status
	if is.Phase != v1alpha1.RolloutComplete || is.Counts.OutsideWindow != 0 || is.Counts.Held == 0 || is.Counts.Total != 300 || is.Counts.Failed < 110 || len(is.FailedUnits) != maxFailedUnits {
		t.Errorf("%s, %+v, %d failed units", is.Phase, is.Counts, len(is.FailedUnits))
	}
	for i := 1; i < len(is.FailedUnits); i++ {
		if is.FailedUnits[i].Unit <= is.FailedUnits[i-1].Unit {
			t.Errorf("not sorted: %s after %s", is.FailedUnits[i].Unit, is.FailedUnits[i-1].Unit)
		}
	}
}

func TestPlan_AbortCountsTheWaveOrAll(t *testing.T) {
	for _, c := range []struct {
		name            string
		percent, min    int32
		updated, failed int32
		want            bool
	}{
		{"below the percentage", 51, 1, 1, 1, false},
		{"at the percentage", 50, 1, 1, 1, true},
		{"too few finished", 50, 3, 1, 1, false},
		{"none failed", 1, 1, 5, 0, false},
		{"none finished", 1, 0, 0, 0, false},
		{"all failed", 100, 2, 0, 2, true},
	} {
		counts := &waveCounts{RolloutCounts: v1alpha1.RolloutCounts{Updated: c.updated, Failed: c.failed}}
		if got := isReached(&v1alpha1.RolloutAbort{Percent: c.percent, MinFinished: c.min}, counts); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if isReached(nil, &waveCounts{RolloutCounts: v1alpha1.RolloutCounts{Failed: 9}}) {
		t.Error("aborted without abortAt")
	}
}

func TestPlan_RobotsThatComeAndGoDoNotBlock(t *testing.T) {
	s := newStory(t, 4, percent("all", 100))
	s.w.Rollout.Spec.MaxWaiting = v1alpha1.NewDuration(2 * time.Minute)
	u := s.unit("r00")
	u.InContact = false
	s.settle()
	for i := range 60 {
		s.passTime(4 * time.Second)
		s.change("r00", func() { u.InContact, u.Tasks[0].RunsSince = i%2 == 0, time.Time{} })
	}
	s.phase(v1alpha1.RolloutComplete)
	if n := s.w.Rollout.Status.Counts.Updated; n != 3 {
		t.Errorf("%d units are updated", n)
	}
}

// A manager that was down does not make up for the rate.
func TestPlan_RateIsNotMadeUpFor(t *testing.T) {
	s := newStory(t, 100, percent("all", 100))
	s.w.Rollout.Spec.Rate = &v1alpha1.RolloutRate{PerMinute: 10}
	s.settle()
	s.now = s.now.Add(time.Hour)
	s.settle()
	if n := s.revisions()["new"]; n != 11 {
		t.Errorf("%d units were changed after an hour without a manager, want those of a minute", n)
	}
}

// A restart of the server interrupts the contact with all robots once.
func TestPlan_ShortOutageOfAllDoesNotEndTheWave(t *testing.T) {
	s := newStory(t, 4, percent("all", 100))
	s.w.Rollout.Spec.MaxWaiting = v1alpha1.NewDuration(time.Minute)
	s.w.Rollout.Spec.Waves[0].HealthyFor = v1alpha1.NewDuration(5 * time.Minute)
	s.settle()
	contact := func(is bool) func() {
		return func() {
			for i := range s.w.Units {
				s.w.Units[i].InContact = is
			}
		}
	}
	s.change("all lose contact", contact(false))
	s.passTime(10 * time.Second)
	s.change("all are back", contact(true))
	s.passTime(2 * time.Minute)
	s.phase(v1alpha1.RolloutProgressing)
	if at := s.w.Rollout.Status.Waves[0].WaitingSince; at != nil {
		t.Errorf("it waits since %s", at)
	}
	s.passTime(5 * time.Minute)
	s.phase(v1alpha1.RolloutComplete)
}

func TestPlan_CountsAloneWaitForTheTick(t *testing.T) {
	s := newStory(t, 50, percent("all", 100))
	s.settle()
	s.now = s.now.Add(tick / 2)
	s.unit("r01").InContact, s.unit("r01").Tasks[0].Revision = false, "old"
	actions := Plan(s.now, tick, s.w)
	if actions.Status != nil || !actions.RequeueAt.Equal(s.w.LastStatus.Add(tick)) {
		t.Errorf("written %v, planned again at %s", actions.Status != nil, actions.RequeueAt)
	}
	s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredPaused
	s.w.Rollout.Generation++
	if Plan(s.now, tick, s.w).Status == nil {
		t.Error("a pause waits for the tick")
	}
}

func TestPlan_RateIsNotExceeded(t *testing.T) {
	for _, perMinute := range []int32{1, 7, 60, 600} {
		s := newStory(t, 200, percent("all", 100))
		s.w.Rollout.Spec.Rate = &v1alpha1.RolloutRate{PerMinute: perMinute}
		s.settle()
		for second := range 60 {
			s.passTime(time.Second)
			most := min(200, int(perMinute)*(second+1)/60+1)
			if n := s.revisions()["new"]; n > most || n < most-int(perMinute)/60-1 {
				t.Fatalf("%d per minute: %d after %d s, at most %d", perMinute, n, second+1, most)
			}
		}
	}
}

// Whatever fails, an aborted Rollout has touched only the units of its first wave.
// A pause between two waves is for finding out what fails late.
func TestPlan_AbortsByFailuresAfterAWave(t *testing.T) {
	first := percent("half", 50)
	first.Pause = v1alpha1.NewDuration(time.Hour)
	first.AbortAt = &v1alpha1.RolloutAbort{Percent: 50, MinFinished: 1}
	s := newStory(t, 4, first, percent("all", 100))
	s.settle()
	s.passTime(time.Minute)
	s.phase(v1alpha1.RolloutPausing)
	s.change("the tasks fail", func() {
		for i := range s.w.Units {
			for n := range s.w.Units[i].Tasks {
				if task := &s.w.Units[i].Tasks[n]; task.Revision == "new" {
					task.State = lifecycle.TaskFailed
				}
			}
		}
	})
	s.phase(v1alpha1.RolloutAborted)
}

// A canceled task proves nothing about its revision.
func TestPlan_CanceledJobStartsNoWave(t *testing.T) {
	s := newStory(t, 4, percent("half", 50), percent("all", 100))
	s.settle()
	s.change("the job is canceled", func() {
		s.w.Job.Status.State = string(lifecycle.JobCanceled)
		for i := range s.w.Units {
			for n := range s.w.Units[i].Tasks {
				s.w.Units[i].Tasks[n].State = lifecycle.TaskCanceled
			}
		}
	})
	s.passTime(time.Hour)
	if st := s.w.Rollout.Status; len(st.Waves) != 1 || st.Counts.Updated != 0 {
		t.Errorf("%s, counts %+v, %d waves", st.Phase, st.Counts, len(st.Waves))
	}
}

// Units that cannot change, for whatever reason, must not hold a wave forever.
func TestPlan_UnitsThatCannotChangeEndTheirWait(t *testing.T) {
	s := newStory(t, 2, percent("all", 100))
	s.w.Rollout.Spec.MaxWaiting, s.w.Rollout.Spec.Deadline = v1alpha1.NewDuration(0), v1alpha1.NewDuration(5*time.Minute)
	s.cannotChange = true
	s.settle()
	s.passTime(time.Minute)
	s.phase(v1alpha1.RolloutProgressing)
	s.passTime(5 * time.Minute)
	s.phase(v1alpha1.RolloutComplete)
}

func TestPlan_BadRevisionReachesOnlyTheFirstWave(t *testing.T) {
	for _, n := range []int{1, 10, 99} {
		s := newStory(t, n, percent("canary", 5), percent("all", 100))
		s.w.Rollout.Spec.AbortAt = &v1alpha1.RolloutAbort{Percent: 1, MinFinished: 1}
		for i := range s.w.Units {
			s.broken[s.w.Units[i].Name] = true
		}
		s.settle()
		s.passTime(time.Hour)
		s.phase(v1alpha1.RolloutAborted)
		if got, want := s.revisions()["new"], (n*5+99)/100; got != want {
			t.Errorf("%d of %d units were changed, want %d", got, n, want)
		}
	}
}

func TestPlan_IsStable(t *testing.T) {
	s := ended(t, v1alpha1.RolloutComplete)
	for i := range 3 {
		if actions := Plan(s.now.Add(time.Duration(i)*time.Hour), tick, s.w); actions.Status != nil {
			t.Errorf("plan %d writes %s", i, fmt.Sprint(actions.Status))
		}
	}
}
