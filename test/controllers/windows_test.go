package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestMaintenanceWindow_DelaysInterruptions(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "window", s.namespace, []testCase[*space]{
		{"a rollout waits until the window opens", delaysARollout},
		{"an edit of a job that changes at once waits", delaysAnEdit},
		{"a rollout may ignore windows, but not holds", ignoresWindows},
		{"a window that cannot be used stays closed", staysClosed},
		{"preemption waits", delaysPreemption},
		{"what a user asks for acts at once", delaysNoUser},
		{"only admins write windows and ignore them", protectsWindows},
	})
}

// windowName is that of a window which an exception closes for many years. Without it, it is always open.
const windowName = "w"

func (s *space) closeWindow() {
	s.Helper()
	w := &v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: windowName}}
	w.Spec.Schedule, w.Spec.Duration = "* * * * *", "168h"
	w.Spec.Exceptions = []v1alpha1.WindowException{{
		From: metav1.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), Until: metav1.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Reason: "test",
	}}
	s.must(s.Create(s.Context(), w))
	s.awaitWindow(metav1.ConditionFalse, v1alpha1.ReasonWindowClosed)
}

func (s *space) openWindow() {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "open the window", func() error {
		w := s.windowNow()
		w.Spec.Exceptions = nil
		return s.Update(s.Context(), w)
	})
	s.awaitWindow(metav1.ConditionTrue, v1alpha1.ReasonWindowOpen)
}

func (s *space) windowNow() *v1alpha1.MaintenanceWindow {
	s.Helper()
	var w v1alpha1.MaintenanceWindow
	s.must(s.Get(s.Context(), s.key(windowName), &w))
	return &w
}

func (s *space) awaitWindow(is metav1.ConditionStatus, reason string) *v1alpha1.MaintenanceWindow {
	s.Helper()
	var w *v1alpha1.MaintenanceWindow
	testkit.EventuallyNoError(s, waitTimeout, "the window shows "+reason, func() error {
		w = s.windowNow()
		c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionOpen)
		if c == nil || c.Status != is || c.Reason != reason || w.Status.ObservedGeneration != w.Generation {
			return fmt.Errorf("status %+v", w.Status)
		}
		return nil
	})
	return w
}

// awaitCounts waits until a rollout that progresses has these counts.
func (s *space) awaitCounts(name string, has func(v1alpha1.RolloutCounts) bool) *v1alpha1.Rollout {
	s.Helper()
	var r *v1alpha1.Rollout
	testkit.EventuallyNoError(s, waitTimeout, "rollout "+name+" has counted", func() error {
		if r = s.rolloutNow(name); r.Status.Phase != v1alpha1.RolloutProgressing || !has(r.Status.Counts) {
			return fmt.Errorf("it is %s (%s): %+v", r.Status.Phase, r.Status.Message, r.Status.Counts)
		}
		return nil
	})
	return r
}

func outsideWindow(n int32) func(v1alpha1.RolloutCounts) bool {
	return func(c v1alpha1.RolloutCounts) bool { return c.OutsideWindow == n && c.Waiting+c.Updating == 0 }
}

func held(n int32) func(v1alpha1.RolloutCounts) bool {
	return func(c v1alpha1.RolloutCounts) bool { return c.Held == n && c.Waiting+c.Updating == 0 }
}

// neverInterrupted fails the test if a task was stopped.
func (s *space) neverInterrupted() {
	s.Helper()
	for _, t := range s.tasksOf("j-g") {
		if t.Status.Attempt != 1 || t.Spec.EvictAttempt != 0 {
			s.Errorf("%s has attempt %d, evicted is %d", t.Name, t.Status.Attempt, t.Spec.EvictAttempt)
		}
	}
}

func delaysARollout(s *space) {
	s.robots("win-a", "win-b", "win-c")
	s.closeWindow()
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 3)
	s.changeWord("new", 2)
	s.rollout("r", []v1alpha1.RolloutWave{wave("all", 100)}, func(r *v1alpha1.RolloutSpec) { r.MaxWaiting = v1alpha1.NewDuration(time.Millisecond) })
	r := s.awaitCounts("r", outsideWindow(3))
	if !strings.Contains(r.Status.Message, "3 outside their maintenance windows; the next window opens at 2100-01-01T00:00:00Z") {
		s.Errorf("message %q", r.Status.Message)
	}
	if w := s.windowNow(); w.Status.Robots != 3 || w.Status.OpensAt == nil || w.Status.OpensAt.Year() != 2100 {
		s.Errorf("status %+v", w.Status)
	}
	s.neverInterrupted()
	s.openWindow()
	s.awaitRollout("r", v1alpha1.RolloutComplete)
	s.awaitEnvWord("j-g", "new", 3)
}

func delaysAnEdit(s *space) {
	s.robots("we-a", "we-b")
	s.closeWindow()
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "j", nil, healthyAfter(group("g", 2, "t"), 0))
	s.awaitEnvWord("j-g", "", 2)
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	testkit.EventuallyNoError(s, waitTimeout, "the group reports that it waits", func() error {
		c := meta.FindStatusCondition(s.group("j-g").Status.Conditions, v1alpha1.ConditionRolledOut)
		if c == nil || !strings.Contains(c.Message, "replicas outside the maintenance windows of their robots: 2, the next opens at 2100-01-01T00:00:00Z") {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	s.neverInterrupted()
	s.must(s.Delete(s.Context(), s.windowNow()))
	s.awaitEnvWord("j-g", "new", 2)
}

func ignoresWindows(s *space) {
	s.robots("wi-a", "wi-b")
	s.closeWindow()
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 2)
	s.changeWord("new", 2)
	s.updateRobotStatus("wi-b", func(r *v1alpha1.RobotStatus) {
		r.Holds = []v1alpha1.RobotHold{{ID: "1", By: "alice", Reason: "visitors"}}
	})
	s.rollout("r", []v1alpha1.RolloutWave{wave("all", 100)}, func(r *v1alpha1.RolloutSpec) { r.IgnoreWindows = true })
	r := s.awaitCounts("r", held(1))
	if got := s.robotsWith("new"); len(got) != 1 || got[0] != "wi-a" {
		s.Errorf("%v have changed", got)
	}
	if !strings.Contains(r.Status.Message, "1 held at the robots") {
		s.Errorf("message %q", r.Status.Message)
	}
	s.updateRobotStatus("wi-b", func(r *v1alpha1.RobotStatus) { r.Holds = nil })
	s.awaitRollout("r", v1alpha1.RolloutComplete)
	s.awaitEnvWord("j-g", "new", 2)
}

// staysClosed has a time zone of the right form that does not exist.
func staysClosed(s *space) {
	s.robots("wc-a")
	w := &v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: windowName}}
	w.Spec.Schedule, w.Spec.Duration, w.Spec.TimeZone = "* * * * *", "168h", "Europe/Berlln"
	s.must(s.Create(s.Context(), w))
	w = s.awaitWindow(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	if c := w.Status.Conditions[0]; !strings.Contains(c.Message, `spec.timeZone: unknown time zone "Europe/Berlln"`) || w.Status.OpensAt != nil {
		s.Errorf("status %+v", w.Status)
	}
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 1)
	s.changeWord("new", 2)
	s.rollout("r", []v1alpha1.RolloutWave{wave("all", 100)}, func(r *v1alpha1.RolloutSpec) { r.MaxWaiting = v1alpha1.NewDuration(time.Millisecond) })
	r := s.awaitRollout("r", v1alpha1.RolloutComplete) // its only unit is left to follow
	if r.Status.Counts.OutsideWindow != 1 || r.Status.Counts.Updated != 0 {
		s.Errorf("counts %+v", r.Status.Counts)
	}
	s.neverInterrupted()
	w.Spec.TimeZone = "Europe/Berlin"
	s.must(s.Update(s.Context(), w))
	s.awaitEnvWord("j-g", "new", 1)
}

func delaysPreemption(s *space) {
	s.limited("1", "wp-a")
	s.closeWindow()
	s.stopsWhenAsked()
	s.job("low", group("g", 1, "t"))
	s.awaitTask("low-g-0-t", lifecycle.TaskRunning)
	s.jobOf(v1alpha1.JobTypeBatch, "pushes", func(j *v1alpha1.JobSpec) { p := int32(95); j.Priority, j.Preemption = &p, true }, group("g", 1, "t"))
	s.awaitTask("pushes-g-0-t", lifecycle.TaskPending)
	testkit.Eventually(s, waitTimeout, "the urgent task was considered", func() bool {
		return meta.IsStatusConditionFalse(s.task("pushes-g-0-t").Status.Conditions, v1alpha1.ConditionPlaced)
	})
	if t := s.task("low-g-0-t"); t.Status.State != string(lifecycle.TaskRunning) || t.Status.Attempt != 1 || t.Status.Reason != "" {
		s.Errorf("preempted outside its window: %+v", t.Status)
	}
	s.openWindow()
	s.awaitTask("pushes-g-0-t", lifecycle.TaskRunning)
	s.awaitTask("low-g-0-t", lifecycle.TaskPending)
}

func delaysNoUser(s *space) {
	s.robots("wu-a", "wu-b")
	s.closeWindow()
	s.updateRobotStatus("wu-a", func(r *v1alpha1.RobotStatus) { r.Holds = []v1alpha1.RobotHold{{ID: "1"}} })
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "j", nil, healthyAfter(group("g", 2, "t"), 0))
	s.awaitEnvWord("j-g", "", 2)
	s.must(s.updateJobSpec("j", replicas(1)))
	testkit.Eventually(s, waitTimeout, "one replica has left", func() bool { return len(s.tasksOf("j-g")) == 1 })
	s.must(s.updateJobSpec("j", func(j *v1alpha1.JobSpec) { j.DesiredState = v1alpha1.DesiredCanceled }))
	testkit.Eventually(s, waitTimeout, "the job is canceled", func() bool { return s.jobNow("j").Status.State == string(lifecycle.JobCanceled) })
}

func protectsWindows(s *space) {
	s.bind("edits", "editor", "k8s4r-edit")
	s.bind("edits-too", "admin", "k8s4r-edit")
	s.bind("admins", "admin", "k8s4r-admin")
	s.bind("views", "viewer", "k8s4r-view")
	awaitPolicies(s.T, s)
	const window = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: MaintenanceWindow, metadata: {name: w}, spec: {schedule: "0 2 * * *", duration: 1h}}`
	const ro = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: r}, spec: {target: {name: none}, waves: [{name: all, percent: 100}]}}`
	editor, admin := s.as("editor"), s.as("admin")
	with := func(old, replacement string) func(string) string {
		return func(manifest string) string { return strings.Replace(manifest, old, replacement, 1) }
	}
	ignores := with("spec: {", "spec: {ignoreWindows: true, ")
	const refused = `spec.ignoreWindows: interrupts tasks outside the maintenance windows of their robots, and you may not ignorewindows rollouts.robot.k8s4r.io "r" in namespace`
	const shape, zone, length = "must be minute, hour, day of the month, month and day of the week", "must be the name of a time zone", "must be from 1m to 168h"
	schedule := func(v string) string { return with(`"0 2 * * *"`, `"`+v+`"`)(window) }
	attempts := []creation{
		{"editor writes a window", editor, s.named(window), "cannot create resource"},
		{"admin writes a window", admin, s.named(window), ""},
		{"editor ignores windows", editor, s.named(ignores(ro)), refused},
		{"admin ignores windows", admin, s.named(ignores(ro)), ""},
		{"editor does not", editor, s.named(ro), ""},
		{"weekdays by name", admin, s.named(schedule("*/15 22-23,0 1-7 jan-mar mon-Fri")), ""},
		{"a long and named time zone", admin, s.named(with("duration: 1h", "duration: 168h, timeZone: America/Argentina/Buenos_Aires")(window)), ""},
	}
	for _, bad := range []string{"@every 1h", "@daily", "0 2 * *", "0 0 2 * * *", "0 24 * * *", "60 2 * * *", "TZ=UTC 0 2 * * *", "0 2 * * 7", "at two at night"} {
		attempts = append(attempts, creation{"schedule " + bad, admin, s.named(schedule(bad)), shape})
	}
	for _, bad := range []string{"Local", "local", "../../etc/localtime", "+01:00"} {
		attempts = append(attempts, creation{"time zone " + bad, admin, s.named(with("duration: 1h", `duration: 1h, timeZone: "`+bad+`"`)(window)), zone})
	}
	for _, bad := range []string{"59s", "168h0m1s", "0s"} {
		attempts = append(attempts, creation{"duration " + bad, admin, s.named(with("duration: 1h", "duration: "+bad)(window)), length})
	}
	awaitResponses(s, append(attempts, creation{"an exception that ends before it starts", admin, s.named(with("duration: 1h",
		`duration: 1h, exceptions: [{from: "2026-03-02T02:00:00Z", until: "2026-03-02T01:00:00Z"}]`)(window)), "from must be before until"}))

	r, w := s.named(ro), s.named(window)
	s.must(editor.Create(s.Context(), r))
	s.must(admin.Create(s.Context(), w))
	awaitResponses(s, []change{
		{"editor ignores windows later", editor, r, `{"spec":{"ignoreWindows":true}}`, refused},
		{"editor pauses", editor, r, `{"spec":{"desiredState":"paused"}}`, ""},
		{"admin ignores windows later", admin, r, `{"spec":{"ignoreWindows":true}}`, ""},
		{"editor opens the window", editor, w, `{"spec":{"schedule":"* * * * *"}}`, "cannot patch resource"},
		{"viewer opens the window", s.as("viewer"), w, `{"spec":{"schedule":"* * * * *"}}`, "cannot patch resource"},
		{"editor writes its status", editor, w, `{"status":{"robots":1}}`, "cannot patch resource"},
		{"admin closes it", admin, w, `{"spec":{"schedule":"0 3 * * *"}}`, ""},
	})
	s.must(admin.Patch(s.Context(), r, mergePatch(`{"spec":{"ignoreWindows":true}}`)))
	awaitResponses(s, []change{
		{"editor pauses one that ignores windows", editor, r, `{"spec":{"desiredState":"paused"}}`, ""},
		{"editor stops ignoring windows", editor, r, `{"spec":{"ignoreWindows":null}}`, ""},
	})
}
