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
	s.manager = testkit.NewProcess(t, append([]string{testkit.BinaryPath(t, "k8s4r-manager"), "--kubeconfig", up.KubeconfigOf("k8s4r-manager")}, common...)...)
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

// jobSize is the number of tasks of a Job. Two Jobs run at the same time.
const jobSize = 60

// runJobs creates Jobs until d is over, but at least two, waits until all have completed, and returns
// their number.
func (s *system) runJobs(trace *testkit.Trace, d time.Duration) (jobs int) {
	s.t.Helper()
	// The second script leaves processes running.
	scripts := []string{trace.WrapScript("sleep 0.2"), trace.WrapScript("setsid sleep 600 & sleep 0.1")}
	for until := time.Now().Add(d); time.Now().Before(until) || jobs < 2; jobs++ {
		if jobs >= 2 {
			s.awaitCompleted(jobName(jobs - 2))
		}
		s.createObject(newJob(jobName(jobs), jobSize, scripts[jobs%2]))
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

// checkRuns checks the status and the trace of each task: it must have run once, to its end, in its
// first attempt, because no robot was ever lost.
func (s *system) checkRuns(trace *testkit.Trace, jobs int, robots []*realrobot.Robot) (f figures) {
	s.t.Helper()
	starts, ends := trace.CountRuns(s.t)
	for n := range jobs {
		f.Tasks += jobSize
		f.Lost += s.countLost(jobName(n), starts, ends)
	}
	for run, n := range starts {
		if n != 1 || run.Number != 1 {
			f.Doubled++
			s.t.Errorf("attempt %d of %s started %d times", run.Number, run.UID, n)
		}
	}
	for _, r := range robots {
		f.Orphans += r.CountOrphans()
	}
	return f
}

func (s *system) countLost(job string, starts, ends map[testkit.Attempt]int) (lost int) {
	s.t.Helper()
	var tasks v1alpha1.TaskList
	if err := s.List(context.Background(), &tasks, client.InNamespace("default"), client.MatchingLabels{v1alpha1.LabelJob: job}); err != nil {
		s.t.Fatal(err)
	}
	complete := 0
	for _, task := range tasks.Items {
		run := testkit.Attempt{UID: string(task.UID), Number: 1}
		if starts[run] > 0 && ends[run] == 1 && task.Status.State == "completed" && task.Status.Attempt == 1 {
			complete++
			continue
		}
		s.t.Errorf("%s started %d times and ended %d times; status %+v", task.Name, starts[run], ends[run], task.Status)
	}
	return jobSize - complete
}
