package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	controller "k8s4r.io/k8s4r/internal/controllers/rollout"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// rolloutFleet is a system job with two revisions whose Tasks the test writes: only the rollout controller
// runs.
type rolloutFleet struct {
	*space
	manager   client.Client // with the rights of the manager, which writes Tasks
	job       *v1alpha1.Job
	group     *v1alpha1.TaskGroup
	revisions map[int64]string // of the Tasks, by that of the Job
	robots    []string
}

func newRolloutFleet(s *space, robots ...string) *rolloutFleet {
	s.Helper()
	f := &rolloutFleet{space: s, manager: s.as("system:serviceaccount:k8s4r-system:k8s4r-manager"), revisions: map[int64]string{}, robots: robots}
	g := healthyAfter(group("g", 1, "a"), 0)
	f.job = &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "j"}, Spec: v1alpha1.JobSpec{
		Type: v1alpha1.JobTypeSystem, Update: &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}, TaskGroups: []v1alpha1.TaskGroupDefinition{g},
	}}
	s.must(s.Create(s.Context(), f.job))
	f.group = &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.name, Name: "j-g", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.job, v1alpha1.GroupVersion.WithKind("Job"))},
	}}
	f.group.Spec.JobName, f.group.Spec.GroupName, f.group.Spec.TaskGroupTemplate = "j", "g", *f.job.Spec.TaskGroups[0].TaskGroupTemplate.DeepCopy()
	s.must(f.manager.Create(s.Context(), f.group))
	for i, word := range []string{"one", "two"} {
		f.addRevision(int64(i)+1, word)
	}
	f.job.Status.State, f.job.Status.CurrentRevision, f.job.Status.UpdateRevision = string(lifecycle.JobRunning), 1, 2
	s.must(f.manager.Status().Update(s.Context(), f.job))
	for _, name := range robots {
		f.addRobot(name)
	}
	return f
}

// addRevision writes a revision, as the job controller does.
func (f *rolloutFleet) addRevision(n int64, word string) {
	f.Helper()
	spec := f.job.Spec.DeepCopy()
	spec.TaskGroups[0].Tasks[0].Env = map[string]string{"WORD": word}
	data, err := jobrevision.ContentOf(spec).Encode()
	f.must(err)
	f.revisions[n] = revision.TaskRevisions(&spec.TaskGroups[0].TaskGroupTemplate)["a"]
	f.must(f.Create(f.Context(), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.name, Name: "j-" + jobrevision.HashData(data), Labels: map[string]string{v1alpha1.LabelPrefixedJob: "j"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.job, v1alpha1.GroupVersion.WithKind("Job"))},
		},
		Revision: n, Data: runtime.RawExtension{Raw: data},
	}))
}

// addRobot registers a robot that runs the first revision.
func (f *rolloutFleet) addRobot(name string) {
	f.Helper()
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: name}}
	r.Spec.RobotID = name
	f.must(f.Create(f.Context(), r))
	f.setPhase(name, lifecycle.RobotOnline)
	t := &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.name, Name: "j-" + name, Labels: map[string]string{v1alpha1.LabelTaskIndex: "0", v1alpha1.LabelRevision: f.revisions[1]},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.group, v1alpha1.GroupVersion.WithKind("TaskGroup"))},
		},
		Spec: v1alpha1.TaskSpec{JobName: "j", TaskGroupName: "j-g", Type: v1alpha1.JobTypeSystem, TargetRobot: name, TaskDefinition: f.job.Spec.TaskGroups[0].Tasks[0]},
	}
	f.must(f.manager.Create(f.Context(), t))
	t.Status = v1alpha1.TaskStatus{State: string(lifecycle.TaskRunning), Attempt: 1, Attempts: []v1alpha1.TaskAttempt{{Attempt: 1, Robot: name}}}
	f.must(f.manager.Status().Update(f.Context(), t))
}

func (f *rolloutFleet) setPhase(robot string, phase lifecycle.RobotPhase) {
	f.Helper()
	f.updateRobotStatus(robot, func(st *v1alpha1.RobotStatus) {
		st.Phase, st.DeviceInfo = string(phase), &v1alpha1.DeviceInfo{Platform: &v1alpha1.Platform{OS: "linux"}, Drivers: []string{"exec"}}
	})
}

// roll creates a Rollout.
func (f *rolloutFleet) roll(name string, change func(*v1alpha1.RolloutSpec), waves ...v1alpha1.RolloutWave) {
	f.Helper()
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: name}}
	r.Spec.Target.Name, r.Spec.Waves = "j", waves
	if change != nil {
		change(&r.Spec)
	}
	f.must(f.Create(f.Context(), r))
}

// await gives the Tasks of robots that are online the revisions that they should have, as the task group
// controller does, until the Rollout is in a phase.
func (f *rolloutFleet) await(name, phase string) *v1alpha1.Rollout {
	f.Helper()
	var r v1alpha1.Rollout
	testkit.EventuallyNoError(f, waitTimeout, "rollout "+name+" is "+phase, func() error {
		if err := f.Get(f.Context(), f.key(name), &r); err != nil {
			return err
		}
		for _, robot := range f.robots {
			if err := f.follow(&r, robot); err != nil {
				return err
			}
		}
		if r.Status.Phase != phase {
			return fmt.Errorf("%s: %s", r.Status.Phase, r.Status.Message)
		}
		return nil
	})
	return &r
}

func (f *rolloutFleet) follow(r *v1alpha1.Rollout, robot string) error {
	var of v1alpha1.Robot
	var t v1alpha1.Task
	if err := f.Get(f.Context(), f.key(robot), &of); err != nil || of.Status.Phase != string(lifecycle.RobotOnline) {
		return err
	}
	if err := f.Get(f.Context(), f.key("j-"+robot), &t); err != nil {
		return err
	}
	want := map[rollout.Decision]string{rollout.Target: f.revisions[2], rollout.Base: f.revisions[1]}[rollout.Decide(r, rollout.Unit{Name: robot})]
	if want == "" || t.Labels[v1alpha1.LabelRevision] == want {
		return nil
	}
	t.Labels[v1alpha1.LabelRevision] = want
	t.Annotations = map[string]string{v1alpha1.AnnotationRevisedAt: time.Now().UTC().Format(time.RFC3339)}
	return f.manager.Update(f.Context(), &t)
}

// withRevision counts the Tasks of a revision of the Job.
func (f *rolloutFleet) withRevision(n int64) int {
	f.Helper()
	count := 0
	for _, t := range f.tasks() {
		if t.Labels[v1alpha1.LabelRevision] == f.revisions[n] {
			count++
		}
	}
	return count
}

func TestRollout_ChangesAJobInWaves(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, manager.Config{Controllers: []string{controller.Name}}, caseNamespaces("waves", 5)...)
	runCases(t, "waves", s.namespace, []testCase[*space]{
		{"waves, an approval and a robot that comes back", rollsInWaves},
		{"failures abort the first wave and revert it", abortsAndReverts},
		{"a rollout waits until it can start, and a newer one supersedes it", supersedes},
		{"only users with the verb approve it, and its waves do not change", approvesRollouts},
		{"a wave ends only after a heartbeat of its robot, which a slice has", waitsForHeartbeats},
	})
}

var (
	canary    = v1alpha1.RolloutWave{Name: "canary", Count: ptr.To[int32](1)}
	remainder = v1alpha1.RolloutWave{Name: "rest", Percent: ptr.To[int32](100)}
)

func manual(w v1alpha1.RolloutWave) v1alpha1.RolloutWave {
	w.Approval = v1alpha1.ApprovalManual
	return w
}

func rollsInWaves(s *space) {
	f := newRolloutFleet(s, "waves-a", "waves-b", "waves-c")
	f.setPhase("waves-c", lifecycle.RobotOffline)
	f.roll("r", func(r *v1alpha1.RolloutSpec) { r.MaxWaiting = v1alpha1.NewDuration(0) }, canary, manual(remainder))
	r := f.await("r", v1alpha1.RolloutWaitingForApproval)
	if r.Status.Revision != 2 || r.Status.FromRevision != 1 || r.Status.Counts.Total != 3 || f.withRevision(2) > 1 {
		s.Errorf("%+v, %d tasks changed", r.Status, f.withRevision(2))
	}
	r.Spec.ApprovedWaves = []string{"rest"}
	s.must(s.Update(s.Context(), r))
	r = f.await("r", v1alpha1.RolloutComplete)
	if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionComplete) || r.Status.Counts.Updated != 2 || r.Status.Counts.OutOfContact != 1 {
		s.Errorf("%+v", r.Status)
	}
	f.setPhase("waves-c", lifecycle.RobotOnline)
	testkit.Eventually(s, waitTimeout, "a robot that is back follows", func() bool {
		s.must(f.follow(r, "waves-c"))
		return f.withRevision(2) == 3
	})
	f.awaitEvent("r", controller.ReasonWaveStarted, "wave rest (2 of 2)")
	f.awaitEvent("r", v1alpha1.RolloutComplete, "2 of 3 units updated")
}

func (f *rolloutFleet) awaitEvent(rollout, reason, text string) {
	f.Helper()
	testkit.Eventually(f, waitTimeout, "event "+reason, func() bool {
		var list corev1.EventList
		f.must(f.List(f.Context(), &list, client.InNamespace(f.name)))
		for _, e := range list.Items {
			if e.InvolvedObject.Name == rollout && e.Reason == reason && strings.Contains(e.Message, text) {
				return true
			}
		}
		return false
	})
}

// The server may be away, or the robot may have lost its network, and the API shows the last report: that a task runs.
func waitsForHeartbeats(s *space) {
	const healthyFor = 2 * time.Second
	f := newRolloutFleet(s, "contact-a")
	var robot v1alpha1.Robot
	s.must(s.Get(s.Context(), s.key("contact-a"), &robot))
	slice := newSlice(s.name, 1)
	slice.Heartbeats[0].Robot, slice.Heartbeats[0].UID = robot.Name, robot.UID
	s.must(s.Create(s.Context(), slice))
	f.updateRobotStatus("contact-a", func(st *v1alpha1.RobotStatus) { st.HeartbeatSlice = slice.Name })
	f.roll("r", nil, v1alpha1.RolloutWave{Name: "all", Percent: ptr.To[int32](100), HealthyFor: v1alpha1.NewDuration(healthyFor)})
	var r *v1alpha1.Rollout
	testkit.Eventually(s, waitTimeout, "the robot has the revision", func() bool {
		r = f.await("r", v1alpha1.RolloutProgressing)
		return r.Status.Counts.Updating == 1
	})
	changed := time.Now()
	testkit.Eventually(s, waitTimeout, "it has run long enough", func() bool { return time.Since(changed) > 2*healthyFor })
	if r = f.await("r", v1alpha1.RolloutProgressing); r.Status.Counts.Updated != 0 {
		s.Errorf("counts %+v without a heartbeat", r.Status.Counts)
	}
	slice.Heartbeats[0].Time = metav1.NowMicro()
	s.must(s.Update(s.Context(), slice))
	f.await("r", v1alpha1.RolloutComplete)
}

func abortsAndReverts(s *space) {
	f := newRolloutFleet(s, "abort-a", "abort-b")
	f.roll("r", func(r *v1alpha1.RolloutSpec) {
		r.OnAbort, r.AbortAt = v1alpha1.OnAbortRevert, &v1alpha1.RolloutAbort{Percent: 1, MinFinished: 1}
	}, v1alpha1.RolloutWave{Name: "canary", Count: ptr.To[int32](1), HealthyFor: v1alpha1.NewDuration(time.Hour)}, remainder)
	f.await("r", v1alpha1.RolloutProgressing)
	testkit.Eventually(s, waitTimeout, "a task is changed", func() bool {
		f.await("r", v1alpha1.RolloutProgressing)
		return f.withRevision(2) == 1
	})
	for _, t := range f.tasks() {
		if t.Labels[v1alpha1.LabelRevision] == f.revisions[2] {
			t.Status.State, t.Status.Reason = string(lifecycle.TaskFailed), "ExitCode"
			s.must(f.manager.Status().Update(s.Context(), &t))
		}
	}
	r := f.await("r", v1alpha1.RolloutReverted)
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionFailed); c == nil || c.Reason != controller.ReasonTooManyFailedUnits || f.withRevision(2) != 0 {
		s.Errorf("%+v, %d tasks have the bad revision", c, f.withRevision(2))
	}
}

func supersedes(s *space) {
	f := newRolloutFleet(s, "newer-a")
	missing := func(r *v1alpha1.RolloutSpec) { r.Target.Revision = 3 }
	f.roll("waits", missing, remainder)
	if r := f.await("waits", v1alpha1.RolloutPending); !strings.Contains(r.Status.Message, "revision 3 is not the definition of Job j, which is revision 2") {
		s.Error(r.Status.Message)
	}
	f.roll("older", nil, manual(remainder))
	older := f.await("older", v1alpha1.RolloutWaitingForApproval)
	testkit.Eventually(s, waitTimeout, "creation times, which have seconds, differ", func() bool { return time.Since(older.CreationTimestamp.Time) > time.Second })
	f.roll("r-newer", nil, manual(remainder))
	f.await("r-newer", v1alpha1.RolloutWaitingForApproval)
	f.await("older", v1alpha1.RolloutSuperseded)
	f.await("waits", v1alpha1.RolloutSuperseded)
}

func approvesRollouts(s *space) {
	s.bind("edits", "editor", "k8s4r-edit")
	s.bind("edits-too", "admin", "k8s4r-edit")
	s.bind("admins", "admin", "k8s4r-admin")
	s.allow("operator", "rollouts", "create", "get", "update", "patch")
	awaitPolicies(s.T, s)
	const spec = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: r}, spec: {desiredState: paused, target: {name: none}, waves: [{name: lab, robotSelector: {site: lab}}, {name: rest, percent: 100, approval: manual}]}}`
	r := s.named(spec)
	editor, admin := s.as("editor"), s.as("admin")
	approved := s.named(strings.Replace(spec, "spec: {", "spec: {approvedWaves: [rest], ", 1))
	const refused = `spec.approvedWaves: starts waves, and you may not approve rollouts.robot.k8s4r.io "r" in namespace`
	const fixed = "waves: names, order, robotSelector, percent, count and approval cannot change"
	const tooEarly = "spec.approvedWaves: can be set only when the Rollout has found its revision"
	awaitResponses(s, []creation{
		{"editor creates an approved one", editor, approved, tooEarly},
		{"a user who may not create jobs creates one", s.as("operator"), s.named(strings.Replace(spec, "name: r}", "name: o}", 1)), "you may not create jobs.robot.k8s4r.io"},
	})
	s.must(editor.Create(s.Context(), r))
	awaitResponses(s, []change{
		{"admin approves what may still change", admin, r, `{"spec":{"approvedWaves":["rest"]}}`, tooEarly},
		{"a user who may not create jobs reverts", s.as("operator"), r, `{"spec":{"desiredState":"reverted"}}`, ""},
		{"a user who may not create jobs resumes", s.as("operator"), r, `{"spec":{"desiredState":"running"}}`, "you may not create jobs.robot.k8s4r.io"},
		{"a user who may not create jobs changes a wave", s.as("operator"), r, `{"spec":{"maxUnavailable":5}}`, "you may not create jobs.robot.k8s4r.io"},
		{"editor resumes", editor, r, `{"spec":{"desiredState":"running"}}`, ""},
	})
	testkit.EventuallyNoError(s, waitTimeout, "it has a revision", func() error {
		if err := s.Get(s.Context(), s.key("r"), r); err != nil {
			return err
		}
		r.SetResourceVersion(r.GetResourceVersion())
		return s.Status().Patch(s.Context(), r, mergePatch(`{"status":{"revision":1}}`))
	})
	awaitResponses(s, []change{
		{"editor approves", editor, r, `{"spec":{"approvedWaves":["rest"]}}`, refused},
		{"editor removes the approval", editor, r, `{"spec":{"waves":[{"name":"lab","robotSelector":{"site":"lab"}},{"name":"rest","percent":100}]}}`, fixed},
		{"editor changes a selector", editor, r, `{"spec":{"waves":[{"name":"lab","robotSelector":{"site":"hall"}},{"name":"rest","percent":100,"approval":"manual"}]}}`, fixed},
		{"editor removes a wave", editor, r, `{"spec":{"waves":[{"name":"rest","percent":100,"approval":"manual"}]}}`, fixed},
		{"editor changes a pause", editor, r, `{"spec":{"waves":[{"name":"lab","robotSelector":{"site":"lab"},"pause":"1m"},{"name":"rest","percent":100,"approval":"manual"}]}}`, ""},
		{"editor changes the target", editor, r, `{"spec":{"target":{"name":"other"}}}`, "target: a Rollout changes one target"},
		{"editor pauses", editor, r, `{"spec":{"desiredState":"paused"}}`, ""},
		{"admin approves", admin, r, `{"spec":{"approvedWaves":["rest"]}}`, ""},
		{"admin approves a wave that does not exist", admin, r, `{"spec":{"approvedWaves":["other"]}}`, "approvedWaves: must be names of waves"},
	})
}
