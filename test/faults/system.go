package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// system is a complete K8s4r of separate programs, each of which can be killed.
type system struct {
	client.Client
	t               testing.TB
	broker          *testkit.SecureMosquitto
	manager, server *testkit.Process
}

// startSystem starts all programs except robots. If serverProxy is not nil, the server connects to
// the address that it returns for the broker.
func startSystem(t testing.TB, offlineAfter time.Duration, serverProxy func(*testkit.SecureMosquitto) string) *system {
	t.Helper()
	broker := testkit.NewSecureMosquitto(t)
	up := testkit.StartUp(t, "--without", "manager,server,broker,robots")
	s := &system{Client: testkit.NewClient(t, up.RESTConfig()), t: t, broker: broker}
	common := []string{"--leader-elect=false", "--metrics-bind-address", "0",
		"--health-probe-bind-address", "0", "--offline-after", offlineAfter.String()}
	addr := broker.Addr
	if serverProxy != nil {
		addr = serverProxy(broker)
	}
	s.manager = testkit.NewProcess(t, append([]string{testkit.BinaryPath(t, "k8s4r-manager"), "--kubeconfig", up.KubeconfigOf("k8s4r-manager"), "--api-bind-address=127.0.0.1:0"}, common...)...)
	s.server = testkit.NewProcess(t, slices.Concat([]string{testkit.BinaryPath(t, "k8s4r-server"), "--kubeconfig", up.Kubeconfig, "--log-dir", t.TempDir()}, broker.ServerFlags(addr), common)...)
	s.manager.Start()
	s.server.Start()
	return s
}

// newRobot returns a robot that joins and uses the broker at addr, which is the broker's or that of a
// proxy.
func (s *system) newRobot(addr string, args ...string) *realrobot.Robot {
	s.t.Helper()
	join := testkit.JoinFlags(s.t, s, "default", realrobot.IDPattern)
	return realrobot.New(s.t, slices.Concat(join, []string{"--mqtt-url", "mqtts://" + addr}, args)...)
}

// awaitOnline blocks until a robot is online.
func (s *system) awaitOnline(r *realrobot.Robot) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, progressTimeout, "robot "+r.ID+" is online", func() error {
		var found v1alpha1.Robot
		if err := s.Get(context.Background(), objectKey(r.ID), &found); err != nil {
			return err
		}
		if found.Status.Phase != "Online" {
			return fmt.Errorf("phase %q: %s", found.Status.Phase, found.Status.Message)
		}
		return nil
	})
}

func objectKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: "default", Name: name}
}

// createObject creates an object, and retries until the API server accepts it.
func (s *system) createObject(obj client.Object) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, progressTimeout, "create "+obj.GetName(), func() error { return s.Create(context.Background(), obj) })
}

// newJob returns a Job with one group of tasks that run a script.
func newJob(name string, count int32, script string) *v1alpha1.Job {
	return &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{{
			Name: "main", TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Count: &count, Tasks: []v1alpha1.TaskDefinition{{
				Name: "work", Driver: v1alpha1.DriverRawExec,
				Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/sh", Args: []string{"-c", script}}},
			}}},
		}}},
	}
}

const (
	// jobSize is the number of tasks of a Job, or of indexes of its array. Two Jobs run at the same time.
	jobSize = 60
	// rangeSize is the number of indexes that a robot gets at a time.
	rangeSize = 15
)

// traces are what the tasks, and the indexes of arrays, write themselves.
type traces struct {
	tasks   *testkit.Trace
	indexes *testkit.IndexTrace
}

func newTraces(t testing.TB) traces { return traces{testkit.NewTrace(t), testkit.NewIndexTrace(t)} }

// newJobNumber returns the Job with this number. Every third one has an array.
func (l traces) newJobNumber(n int) *v1alpha1.Job {
	switch n % 3 {
	case 0:
		return newJob(jobName(n), jobSize, l.tasks.WrapScript("sleep 0.2"))
	case 1: // it leaves processes running
		return newJob(jobName(n), jobSize, l.tasks.WrapScript("setsid sleep 600 & sleep 0.1"))
	}
	j := newJob(jobName(n), 1, l.indexes.WrapScript("sleep 0.1"))
	j.Spec.TaskGroups[0].Count, j.Spec.TaskGroups[0].Array = nil, &v1alpha1.Array{Size: jobSize, RangeSize: rangeSize}
	return j
}

// hasArray reports whether the Job with this number has an array.
func hasArray(n int) bool { return n%3 == 2 }

// runJobs creates Jobs until d is over, but at least three, waits until all have completed, and returns
// their number.
func (s *system) runJobs(l traces, d time.Duration) (jobs int) {
	s.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until) || jobs < 3; jobs++ {
		if jobs >= 2 {
			s.awaitCompleted(jobName(jobs - 2))
		}
		s.createObject(l.newJobNumber(jobs))
	}
	s.awaitCompleted(jobName(jobs - 2))
	s.awaitCompleted(jobName(jobs - 1))
	return jobs
}

func jobName(n int) string { return "job-" + strconv.Itoa(n) }

func (s *system) awaitCompleted(name string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 2*progressTimeout, name+" completes", func() error {
		var j v1alpha1.Job
		if err := s.Get(context.Background(), objectKey(name), &j); err != nil {
			return err
		}
		if j.Status.State != "completed" {
			return fmt.Errorf("state %q: %+v", j.Status.State, j.Status.TaskCounts)
		}
		return nil
	})
}

// checkRuns checks the status and the trace of each task and index: it must have run once, to its end,
// in the first attempt, because no robot was ever lost.
func (s *system) checkRuns(l traces, jobs int, robots []*realrobot.Robot) (f figures) {
	s.t.Helper()
	starts, ends := l.tasks.CountRuns(s.t)
	indexStarts, indexEnds := l.indexes.CountRuns(s.t)
	for n := range jobs {
		f.Tasks += jobSize
		if hasArray(n) {
			f.Lost += s.countLostIndexes(jobName(n), indexStarts, indexEnds)
		} else {
			f.Lost += s.countLost(jobName(n), starts, ends)
		}
	}
	for run, n := range starts {
		if n != 1 || run.Number != 1 {
			f.Doubled++
			s.t.Errorf("attempt %d of %s started %d times", run.Number, run.UID, n)
		}
	}
	for run, n := range indexStarts {
		if n != 1 || run.Number != 1 {
			f.Doubled++
			s.t.Errorf("attempt %d of %s started index %d %d times", run.Number, run.UID, run.Index, n)
		}
	}
	for _, r := range robots {
		f.Orphans += r.CountOrphans()
	}
	return f
}

func (s *system) countLost(job string, starts, ends map[testkit.Attempt]int) (lost int) {
	s.t.Helper()
	complete := 0
	for _, task := range s.listTasks(job) {
		run := testkit.Attempt{UID: string(task.UID), Number: 1}
		if starts[run] > 0 && ends[run] == 1 && task.Status.State == "completed" && task.Status.Attempt == 1 {
			complete++
			continue
		}
		s.t.Errorf("%s started %d times and ended %d times; status %+v", task.Name, starts[run], ends[run], task.Status)
	}
	return jobSize - complete
}

func (s *system) listTasks(job string) []v1alpha1.Task {
	s.t.Helper()
	var tasks v1alpha1.TaskList
	if err := s.List(context.Background(), &tasks, client.InNamespace("default"), client.MatchingLabels{v1alpha1.LabelJob: job}); err != nil {
		s.t.Fatal(err)
	}
	return tasks.Items
}

// countLostIndexes returns how many indexes of a Job did not run once, or are not recorded as succeeded.
func (s *system) countLostIndexes(job string, starts, ends map[testkit.IndexRun]int) (lost int) {
	s.t.Helper()
	complete := 0
	for _, task := range s.listTasks(job) {
		succeeded, _ := array.Ended(&task)
		for i := range succeeded.All() {
			run := testkit.IndexRun{Attempt: testkit.Attempt{UID: string(task.UID), Number: 1}, Index: i}
			if starts[run] > 0 && ends[run] == 1 {
				complete++
				continue
			}
			s.t.Errorf("index %d of %s started %d times and ended %d times", i, task.Name, starts[run], ends[run])
		}
		if task.Status.State != "completed" || array.CountIndexes(&task).Succeeded != rangeSize {
			s.t.Errorf("range %s: status %+v, array %+v", task.Name, task.Status, task.Status.Array)
		}
	}
	return jobSize - complete
}
