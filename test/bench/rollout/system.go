package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	jobName = "fleet"
	// healthyFor is how long a robot must run a revision until it counts as updated.
	healthyFor = time.Second
	// maxWaiting is how long a wave waits for robots out of contact.
	maxWaiting = 5 * time.Second
	// rolloutTimeout is when a Rollout should have ended.
	rolloutTimeout = 10 * time.Minute
	// endPoll is the time between two looks at a Rollout.
	endPoll = 200 * time.Millisecond
)

// bench is the system under test.
type bench struct {
	testing.TB
	client.WithWatch
	up      *testkit.Up // API server, server and broker
	manager *testkit.Process
	// profiles is the URL of the manager's profiles.
	profiles string
	fleet    *fleet
	// waves are the percentages of the waves.
	waves        []int32
	revision     int64 // of the Job, the newest one
	stopFlapping func()
	good         testkit.Writes // of the good Rollout
	result       result
}

// startBench starts the programs and the fleet, runs the first version of the task on all robots, and
// then breaks the contact with those that are chosen for it.
func startBench(t testing.TB, waves []int32) *bench {
	up := testkit.StartUp(t, "--profile", "--without", "manager,robots,node,console")
	s := &bench{TB: t, WithWatch: testkit.NewClient(t, up.RESTConfig()), up: up, waves: waves, revision: 1}
	address := testkit.FreeAddr(t)
	s.manager = testkit.NewProcess(t, testkit.BinaryPath(t, "k8s4r-manager"), "--kubeconfig", up.KubeconfigOf("k8s4r-manager"), "--leader-elect=false",
		"--metrics-bind-address="+address, "--health-probe-bind-address=0", "--api-bind-address=127.0.0.1:0")
	s.manager.Start()
	s.profiles = "http://" + address + "/debug/pprof/"
	began := time.Now()
	s.fleet = startFleet(t, up, *robots)
	t.Logf("%d robots have joined after %.0f s", *robots, time.Since(began).Seconds())
	s.createJob()
	s.fleet.awaitVersion(s.fleet.robots, versionName(1), rolloutTimeout)
	s.awaitRunning(*robots)
	s.fleet.divide()
	s.fleet.loseContact(s.fleet.away)
	s.stopFlapping = s.fleet.startFlapping()
	s.result.Robots, s.result.OutOfContact, s.result.Flapping = *robots, len(s.fleet.away), len(s.fleet.flapping)
	return s
}

func versionName(n int) string { return fmt.Sprintf("v%d", n) }

// createJob creates the Job of type system that the Rollouts change.
func (s *bench) createJob() {
	job := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: jobName}}
	job.Spec.Type, job.Spec.Update = v1alpha1.JobTypeSystem, &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
	job.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{{Name: "main", TaskGroupTemplate: v1alpha1.TaskGroupTemplate{
		Update:        &v1alpha1.Update{MaxParallel: int32(*maxParallel), MinHealthyTime: v1alpha1.NewDuration(healthyFor)},
		RestartPolicy: &v1alpha1.RestartPolicy{Mode: v1alpha1.RestartFail},
		Tasks: []v1alpha1.TaskDefinition{{
			Name: "work", Driver: v1alpha1.DriverExec, Env: map[string]string{versionVariable: versionName(1)},
			Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/true"}},
		}},
	}}}
	if err := s.Create(context.Background(), job); err != nil {
		s.Fatal(err)
	}
}

// awaitRunning waits until the Job shows that so many tasks run.
func (s *bench) awaitRunning(n int) {
	testkit.EventuallyNoError(s, waitTimeout, "the Job shows its tasks", func() error {
		var job v1alpha1.Job
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: jobName}, &job); err != nil {
			return err
		}
		if int(job.Status.RunningTasks) != n {
			return fmt.Errorf("%d of %d run", job.Status.RunningTasks, n)
		}
		return nil
	})
}

// changeVersion changes what the Job runs, and waits until that is a revision.
func (s *bench) changeVersion(version string) {
	key := client.ObjectKey{Namespace: namespace, Name: jobName}
	var job v1alpha1.Job
	testkit.EventuallyNoError(s, waitTimeout, "change the Job", func() error {
		if err := s.Get(context.Background(), key, &job); err != nil {
			return err
		}
		job.Spec.TaskGroups[0].Tasks[0].Env = map[string]string{versionVariable: version}
		return s.Update(context.Background(), &job)
	})
	s.revision++
	testkit.EventuallyNoError(s, waitTimeout, "the change is a revision", func() error {
		if err := s.Get(context.Background(), key, &job); err != nil {
			return err
		}
		if job.Status.UpdateRevision != s.revision {
			return fmt.Errorf("revision %d, want %d", job.Status.UpdateRevision, s.revision)
		}
		return nil
	})
}

// startRollout creates a Rollout to the newest revision, which goes back if a robot fails.
func (s *bench) startRollout(name string) {
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	r.Spec.Target.Name, r.Spec.OnAbort, r.Spec.MaxWaiting = jobName, v1alpha1.OnAbortRevert, v1alpha1.NewDuration(maxWaiting)
	r.Spec.AbortAt = &v1alpha1.RolloutAbort{Percent: 10, MinFinished: 1}
	for i, percent := range s.waves {
		r.Spec.Waves = append(r.Spec.Waves, v1alpha1.RolloutWave{Name: fmt.Sprintf("wave-%d", i+1), Percent: &percent, HealthyFor: v1alpha1.NewDuration(healthyFor)})
	}
	if err := s.Create(context.Background(), r); err != nil {
		s.Fatal(err)
	}
}

// awaitEnd waits until a Rollout has ended, and returns it. One that does not end is an error, and its
// waves are still counted.
func (s *bench) awaitEnd(name, phase string) *v1alpha1.Rollout {
	for until := time.Now().Add(rolloutTimeout); ; time.Sleep(endPoll) {
		var r v1alpha1.Rollout
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &r); err != nil {
			s.Fatal(err)
		}
		if r.Status.Phase == phase {
			return &r
		}
		if hasEnded := r.Status.CompletedAt != nil; hasEnded || time.Now().After(until) {
			s.Errorf("Rollout %s is %s, want %s: %s; %+v", name, r.Status.Phase, phase, r.Status.Message, r.Status.Waves)
			return &r
		}
	}
}

// countWrites returns the writes of our kinds and of events since the API server started.
func (s *bench) countWrites() testkit.Writes {
	all := testkit.CountWrites(s, s.up.RESTConfig())
	maps.DeleteFunc(all, func(w testkit.WriteRequest, _ int) bool {
		return !strings.HasSuffix(w.Group, "k8s4r.io") && w.Resource != "events"
	})
	return all
}

// dropContact drops the writes that report contact with robots: flapping robots cause them, and not the Rollout.
func dropContact(all testkit.Writes) testkit.Writes {
	maps.DeleteFunc(all, func(w testkit.WriteRequest, _ int) bool {
		return w.Resource == "robots" || w.Resource == "heartbeatslices"
	})
	return all
}

// printWrites prints each kind of write of the good Rollout.
func (s *bench) printWrites() {
	var lines []string
	for r, n := range s.good {
		lines = append(lines, fmt.Sprintf("%8d  %s %s", n, r.Verb, strings.Trim(r.Resource+"/"+r.Subresource, "/")))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	fmt.Printf("\nwrites of the good Rollout:\n%s\n\n", strings.Join(lines, "\n"))
}
