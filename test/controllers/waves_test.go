package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestRollout_ChangesTasks(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "wave", s.namespace, []testCase[*space]{
		{"a system job changes robot by robot, waits for an approval, and covers robots that join", changesRobotsInWaves},
		{"a service changes a share of its replicas in each wave", changesReplicasInWaves},
		{"an edit alone changes no task", changesNothingWithoutARollout},
		{"too many failures stop it, and the changed robots go back", revertsByItself},
		{"a failed robot is tried again", retriesFailedRobots},
		{"a paused rollout changes nothing more, and a user takes it back", pausesAndReverts},
		{"a robot out of contact delays no other robot, and follows later", followsLater},
		{"a newer rollout supersedes an older one", endsOlderRollout},
	})
}

// rolloutJob creates a running job whose definition changes only by Rollouts.
func (s *space) rolloutJob(jobType string, count int32, running int) {
	s.Helper()
	g := healthyAfter(group("g", count, "t"), 0)
	g.Update.MaxParallel = 10
	g.RestartPolicy = &v1alpha1.RestartPolicy{Mode: v1alpha1.RestartFail} // a task that fails has failed for good
	s.jobOf(jobType, "j", func(j *v1alpha1.JobSpec) { j.Update = &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout} }, g)
	s.awaitEnvWord("j-g", "", running)
}

// changeWord changes the definition of the job, and waits until that is a revision.
func (s *space) changeWord(word string, revision int64) {
	s.Helper()
	s.must(s.updateJobSpec("j", withWord(0, word)))
	testkit.EventuallyNoError(s, waitTimeout, "the change is a revision", func() error {
		if got := s.jobNow("j").Status.UpdateRevision; got != revision {
			return fmt.Errorf("revision %d", got)
		}
		return nil
	})
}

func (s *space) jobNow(name string) *v1alpha1.Job {
	s.Helper()
	var j v1alpha1.Job
	s.must(s.Get(s.Context(), s.key(name), &j))
	return &j
}

func (s *space) rollout(name string, waves []v1alpha1.RolloutWave, change func(*v1alpha1.RolloutSpec)) {
	s.Helper()
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}
	r.Spec = v1alpha1.RolloutSpec{Target: v1alpha1.RolloutTarget{Name: "j"}, Waves: waves}
	if change != nil {
		change(&r.Spec)
	}
	s.must(s.Create(s.Context(), r))
}

func (s *space) updateRollout(name string, f func(*v1alpha1.RolloutSpec)) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "write rollout "+name, func() error {
		r := s.rolloutNow(name)
		f(&r.Spec)
		return s.Update(s.Context(), r)
	})
}

func (s *space) rolloutNow(name string) *v1alpha1.Rollout {
	s.Helper()
	var r v1alpha1.Rollout
	s.must(s.Get(s.Context(), s.key(name), &r))
	return &r
}

func (s *space) awaitRollout(name, phase string) *v1alpha1.Rollout {
	s.Helper()
	var r *v1alpha1.Rollout
	testkit.EventuallyNoError(s, waitTimeout, "rollout "+name+" is "+phase, func() error {
		if r = s.rolloutNow(name); r.Status.Phase != phase {
			return fmt.Errorf("it is %s (%s): %+v", r.Status.Phase, r.Status.Message, r.Status.Counts)
		}
		return nil
	})
	return r
}

// robotsWith returns the robots whose task has this word, in order.
func (s *space) robotsWith(word string) (names []string) {
	s.Helper()
	for _, t := range s.tasksOf("j-g") {
		if t.Spec.Env["WORD"] == word {
			names = append(names, t.CurrentRobot())
		}
	}
	slices.Sort(names)
	return names
}

func wave(name string, percent int32) v1alpha1.RolloutWave {
	return v1alpha1.RolloutWave{Name: name, Percent: &percent}
}

func changesRobotsInWaves(s *space) {
	s.robots("rw-a", "rw-b", "rw-c", "rw-d", "rw-e")
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 5)
	s.changeWord("new", 2)
	rest := wave("rest", 100)
	rest.Approval = "manual"
	s.rollout("r", []v1alpha1.RolloutWave{wave("first", 40), rest}, nil)
	r := s.awaitRollout("r", v1alpha1.RolloutWaitingForApproval)
	first := s.robotsWith("new")
	if len(first) != 2 || r.Status.Counts.Updated != 2 || r.Status.Counts.Total != 5 {
		s.Fatalf("%v have changed, counts %+v", first, r.Status.Counts)
	}
	if j := s.jobNow("j"); j.Status.CurrentRevision != 1 {
		s.Errorf("the current revision is %d in the middle of the rollout", j.Status.CurrentRevision)
	}
	s.updateRollout("r", func(r *v1alpha1.RolloutSpec) { r.ApprovedWaves = []string{"rest"} })
	r = s.awaitRollout("r", v1alpha1.RolloutComplete)
	s.awaitEnvWord("j-g", "new", 5)
	if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionComplete) {
		s.Errorf("conditions %+v", r.Status.Conditions)
	}
	testkit.Eventually(s, waitTimeout, "the revision is the current one", func() bool { return s.jobNow("j").Status.CurrentRevision == 2 })
	s.robots("rw-f")
	s.awaitEnvWord("j-g", "new", 6)
}

func changesReplicasInWaves(s *space) {
	s.robots("sw-a", "sw-b")
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeService, 4, 4)
	s.changeWord("new", 2)
	half := wave("half", 50)
	rest := wave("rest", 100)
	rest.Approval = "manual"
	s.rollout("r", []v1alpha1.RolloutWave{half, rest}, nil)
	s.awaitRollout("r", v1alpha1.RolloutWaitingForApproval)
	if n := len(s.robotsWith("new")); n != 2 {
		s.Errorf("%d of 4 replicas have changed", n)
	}
	s.updateRollout("r", func(r *v1alpha1.RolloutSpec) { r.ApprovedWaves = []string{"rest"} })
	s.awaitRollout("r", v1alpha1.RolloutComplete)
	s.awaitEnvWord("j-g", "new", 4)
}

func changesNothingWithoutARollout(s *space) {
	s.robots("nw-a", "nw-b")
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 2)
	generation := s.group("j-g").Generation
	s.changeWord("new", 2)
	s.changeWord("newer", 3)
	s.changeWord("", 4) // the first content again
	testkit.Eventually(s, waitTimeout, "the group has seen it", func() bool { return s.jobNow("j").Status.ObservedGeneration == s.jobNow("j").Generation })
	for _, t := range s.tasksOf("j-g") {
		if t.Status.Attempt != 1 || t.Spec.Env["WORD"] != "" {
			s.Errorf("%s has attempt %d and says %q", t.Name, t.Status.Attempt, t.Spec.Env["WORD"])
		}
	}
	if g := s.group("j-g"); g.Generation != generation {
		s.Errorf("the group has generation %d, before %d", g.Generation, generation)
	}
}

// failsWith plays robots on which tasks with this word fail as long as fails returns true.
func (s *space) failsWith(word string, fails func(*v1alpha1.Task) bool) {
	s.follow(func(t *v1alpha1.Task) {
		state := lifecycle.TaskState(t.Status.State)
		signal, reason := lifecycle.TaskStarted, ""
		switch {
		case state.HoldsResources() && t.Status.Reason == v1alpha1.ReasonEvicting:
			signal, reason = lifecycle.TaskAttemptFailed, "Stopped"
		case state != lifecycle.TaskDispatching:
			return
		case t.Spec.Env["WORD"] == word && fails(t):
			signal, reason = lifecycle.TaskAttemptFailed, "ExitCode"
		}
		_ = carry(t, signal, reason) && s.Status().Update(s.Context(), t) == nil
	}, func() {})
}

func revertsByItself(s *space) {
	s.robots("bad-1", "bad-2", "bad-3", "bad-4", "bad-5")
	s.failsWith("bad", func(*v1alpha1.Task) bool { return true })
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 5)
	s.changeWord("bad", 2)
	s.rollout("r", []v1alpha1.RolloutWave{wave("first", 40), wave("rest", 100)}, func(r *v1alpha1.RolloutSpec) {
		r.AbortAt, r.OnAbort = &v1alpha1.RolloutAbort{Percent: 50, MinFinished: 2}, v1alpha1.OnAbortRevert
	})
	touched := map[string]bool{}
	testkit.EventuallyNoError(s, waitTimeout, "it is reverted", func() error {
		for _, name := range s.robotsWith("bad") {
			touched[name] = true
		}
		if r := s.rolloutNow("r"); r.Status.Phase != v1alpha1.RolloutReverted {
			return fmt.Errorf("it is %s (%s): %+v", r.Status.Phase, r.Status.Message, r.Status.Counts)
		}
		return nil
	})
	if len(touched) > 2 {
		s.Errorf("%d robots were touched, the first wave has 2", len(touched))
	}
	s.awaitEnvWord("j-g", "", 5)
	if j := s.jobNow("j"); j.Status.CurrentRevision != 1 || j.Status.State != string(lifecycle.JobRunning) {
		s.Errorf("the job is %s, its current revision %d", j.Status.State, j.Status.CurrentRevision)
	}
}

func retriesFailedRobots(s *space) {
	s.robots("again-1", "again-2")
	failed := 0
	s.failsWith("new", func(*v1alpha1.Task) bool { failed++; return failed == 1 })
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 2)
	s.changeWord("new", 2)
	s.rollout("r", []v1alpha1.RolloutWave{wave("all", 100)}, func(r *v1alpha1.RolloutSpec) { r.Retry = 2 })
	if r := s.awaitRollout("r", v1alpha1.RolloutComplete); r.Status.Counts.Updated != 2 || r.Status.Waves[0].Retries != 1 {
		s.Errorf("counts %+v, waves %+v", r.Status.Counts, r.Status.Waves)
	}
}

func pausesAndReverts(s *space) {
	s.robots("ps-a", "ps-b", "ps-c", "ps-d")
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 4)
	s.changeWord("new", 2)
	rest := wave("rest", 100)
	rest.Approval = "manual"
	s.rollout("r", []v1alpha1.RolloutWave{wave("first", 50), rest}, nil)
	s.awaitRollout("r", v1alpha1.RolloutWaitingForApproval)
	s.updateRollout("r", func(r *v1alpha1.RolloutSpec) {
		r.DesiredState, r.ApprovedWaves = v1alpha1.RolloutDesiredPaused, []string{"rest"}
	})
	s.awaitRollout("r", v1alpha1.RolloutPaused)
	if n := len(s.robotsWith("new")); n != 2 {
		s.Errorf("%d robots have changed", n)
	}
	s.updateRollout("r", func(r *v1alpha1.RolloutSpec) { r.DesiredState = v1alpha1.RolloutDesiredReverted })
	s.awaitRollout("r", v1alpha1.RolloutReverted)
	s.awaitEnvWord("j-g", "", 4)
}

func followsLater(s *space) {
	s.robots("fl-a", "fl-b", "fl-c")
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 3)
	s.updateRobotStatus("fl-c", func(st *v1alpha1.RobotStatus) {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: "False", Reason: "Test"})
	})
	s.awaitPhase("fl-c", lifecycle.RobotUnknown)
	s.changeWord("new", 2)
	s.rollout("r", []v1alpha1.RolloutWave{wave("all", 100)}, func(r *v1alpha1.RolloutSpec) { r.MaxWaiting = v1alpha1.NewDuration(time.Second) })
	r := s.awaitRollout("r", v1alpha1.RolloutComplete)
	if r.Status.Counts.Updated != 2 || r.Status.Counts.OutOfContact != 1 {
		s.Errorf("counts %+v", r.Status.Counts)
	}
	s.recordHeartbeat("fl-c")
	s.awaitPhase("fl-c", lifecycle.RobotOnline)
	s.awaitEnvWord("j-g", "new", 3)
}

func endsOlderRollout(s *space) {
	s.robots("su-a", "su-b")
	s.stopsWhenAsked()
	s.rolloutJob(v1alpha1.JobTypeSystem, 1, 2)
	s.changeWord("new", 2)
	first := wave("all", 100)
	first.Approval = "manual"
	s.rollout("old", []v1alpha1.RolloutWave{first}, nil)
	old := s.awaitRollout("old", v1alpha1.RolloutWaitingForApproval)
	s.changeWord("newer", 3)
	testkit.Eventually(s, waitTimeout, "a second has passed", func() bool { return time.Since(old.CreationTimestamp.Time) > time.Second })
	s.rollout("new", []v1alpha1.RolloutWave{wave("all", 100)}, nil)
	s.awaitRollout("new", v1alpha1.RolloutComplete)
	s.awaitRollout("old", v1alpha1.RolloutSuperseded)
	s.awaitEnvWord("j-g", "newer", 2)
}
