package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	scoreTries = 7
	// scoreTasks return at the same time in each try; half of them prefer the robot that returns.
	scoreTasks = 10
)

// scoredRobot is a robot with a label of its name. Its tasks live on while its agent does not.
type scoredRobot struct {
	name  string
	agent *testkit.Process
}

// runBestScore lets the robot of running tasks return after they were replaced on another one. It
// measures the share of tasks whose attempt on the robot that the job prefers is kept.
func runBestScore(t testing.TB, figures map[string]float64) {
	s := startSystemBy(t, testkit.StartUp, "--robots", "0")
	first, second := s.newScoredRobot("first"), s.newScoredRobot("second")
	first.agent.Start()
	tries, right := countTries(scoreTries), 0
	for i := range tries {
		jobs := s.createScoredJobs(i, first, second)
		s.awaitAttempts(jobs, 1, first)
		second.agent.Start()
		s.awaitPhase(second, lifecycle.RobotOnline)
		first.agent.Kill()
		s.awaitAttempts(jobs, 2, second)
		first.agent.Start()
		right += s.countRightlyKept(jobs)
		for _, job := range jobs {
			s.deleteJob(job)
			s.awaitGone(job)
		}
		second.agent.Kill()
		s.awaitPhase(second, lifecycle.RobotOffline, lifecycle.RobotUnknown)
	}
	figures["best_score_right"] = float64(right) / float64(tries*scoreTasks)
	if right < tries*scoreTasks {
		t.Errorf("%d of %d tasks were kept on the worse robot", tries*scoreTasks-right, tries*scoreTasks)
	}
}

func (s *system) newScoredRobot(name string) scoredRobot {
	s.createObject(&v1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.RobotSpec{RobotID: name, Labels: map[string]string{"robot": name}},
	})
	return scoredRobot{name: name, agent: s.newAgent(name)}
}

func (s *system) awaitPhase(r scoredRobot, phases ...lifecycle.RobotPhase) {
	testkit.EventuallyNoError(s.t, progressTimeout, fmt.Sprintf("%s is %s", r.name, phases), func() error {
		phase := lifecycle.RobotPhase(s.getRobot(r.name).Status.Phase)
		if !slices.Contains(phases, phase) {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
}

// createScoredJobs creates jobs of one task that prefer one robot or the other.
func (s *system) createScoredJobs(try int, prefer ...scoredRobot) (jobs []*v1alpha1.Job) {
	lost := v1alpha1.Duration("1s")
	for i := range scoreTasks {
		job := s.newJob(fmt.Sprintf("score-%d-%d", try, i), 1, "sleep 600")
		job.Labels = map[string]string{"prefers": prefer[i%len(prefer)].name}
		job.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: &lost, Reconcile: v1alpha1.ReconcileBestScore}
		job.Spec.TaskGroups[0].Placement = &v1alpha1.Placement{
			Affinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"robot": job.Labels["prefers"]}, Weight: 50}},
		}
		s.createObject(job)
		jobs = append(jobs, job)
	}
	return jobs
}

// awaitAttempts blocks until this attempt of each job's task runs on a robot.
func (s *system) awaitAttempts(jobs []*v1alpha1.Job, attempt int32, on scoredRobot) {
	for _, job := range jobs {
		testkit.EventuallyNoError(s.t, progressTimeout, fmt.Sprintf("attempt %d of %s runs on %s", attempt, job.Name, on.name), func() error {
			task := s.getTaskOf(job)
			if task.Status.State != string(lifecycle.TaskRunning) || task.Status.Attempt != attempt || task.Spec.TargetRobot != on.name {
				return fmt.Errorf("it is %q: attempt %d on %s", task.Status.State, task.Status.Attempt, task.Spec.TargetRobot)
			}
			return nil
		})
	}
}

// countRightlyKept waits until one attempt of each task is left, and counts the tasks of which it is
// on the robot that the job prefers.
func (s *system) countRightlyKept(jobs []*v1alpha1.Job) (right int) {
	for _, job := range jobs {
		testkit.Eventually(s.t, progressTimeout, "one attempt of "+job.Name+" is left", func() bool { return s.getTaskOf(job).Status.LostAttempt == 0 })
		task := s.getTaskOf(job)
		if kept := task.Status.FindAttempt(task.Status.Attempt).Robot; kept == job.Labels["prefers"] {
			right++
		} else {
			s.t.Logf("%s: attempt %d on %s was kept, preferred is %s", job.Name, task.Status.Attempt, kept, job.Labels["prefers"])
		}
	}
	return right
}

// getTaskOf returns the task of a job of one task.
func (s *system) getTaskOf(job *v1alpha1.Job) *v1alpha1.Task {
	var task v1alpha1.Task
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: job.Name + "-main-0-work"}, &task); err != nil {
		s.t.Logf("get the task of %s: %v", job.Name, err) // it may not exist yet
	}
	return &task
}

// awaitGone blocks until a job and its task are deleted, which the robots have to confirm.
func (s *system) awaitGone(job *v1alpha1.Job) {
	testkit.EventuallyNoError(s.t, progressTimeout, job.Name+" is deleted", func() error {
		var left v1alpha1.TaskList
		if err := s.List(context.Background(), &left, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelJob: job.Name}); err != nil {
			return err
		}
		if len(left.Items) > 0 {
			return fmt.Errorf("%d tasks are left", len(left.Items))
		}
		return nil
	})
}
