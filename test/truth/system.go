package main

import (
	"context"
	"fmt"
	"os/user"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// progressTimeout bounds each wait for progress.
const progressTimeout = time.Minute

// namespace holds the jobs of all cases.
const namespace = "default"

// system is a whole K8s4r with real agents, and a client for its API.
type system struct {
	*testkit.Up
	client.Client
	t testing.TB
}

// startSystem starts a system with real agents, and waits until these are online. Flags in args are
// added.
func startSystem(t testing.TB, robots int, args ...string) *system {
	s := startSystemBy(t, testkit.StartUp, append([]string{"--robots", fmt.Sprint(robots)}, args...)...)
	s.awaitOnline(robots)
	return s
}

// startSystemBy starts a system that has no node and no console.
func startSystemBy(t testing.TB, startUp func(testing.TB, ...string) *testkit.Up, args ...string) *system {
	up := startUp(t, append([]string{"--without", "node,console"}, args...)...)
	return &system{Up: up, Client: testkit.NewClient(t, up.RESTConfig()), t: t}
}

// awaitOnline blocks until this many robots are online.
func (s *system) awaitOnline(robots int) {
	testkit.EventuallyNoError(s.t, progressTimeout, "all robots are online", func() error {
		online := 0
		for _, r := range s.listRobots() {
			if r.Status.Phase == "Online" {
				online++
			}
		}
		if online < robots {
			return fmt.Errorf("%d of %d robots are online", online, robots)
		}
		return nil
	})
}

// newAgent returns a robot with an agent of its own, which is not started yet.
func (s *system) newAgent(id string, args ...string) *testkit.Process {
	command := []string{testkit.BinaryPath(s.t, "k8s4r-agent"), "--robot-id", id, "--state-dir", filepath.Join(s.t.TempDir(), id), "--heartbeat", "1s"}
	return testkit.NewProcess(s.t, slices.Concat(command, testkit.JoinFlags(s.t, s, namespace, id), args)...)
}

func (s *system) getRobot(name string) *v1alpha1.Robot {
	var r v1alpha1.Robot
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &r); err != nil {
		s.t.Fatalf("get robot %s: %v", name, err)
	}
	return &r
}

func (s *system) listRobots() []v1alpha1.Robot {
	var all v1alpha1.RobotList
	if err := s.List(context.Background(), &all, client.InNamespace(namespace)); err != nil {
		s.t.Fatalf("list robots: %v", err)
	}
	return all.Items
}

func (s *system) getJob(name string) *v1alpha1.Job {
	var j v1alpha1.Job
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &j); err != nil {
		s.t.Fatalf("get job %s: %v", name, err)
	}
	return &j
}

func (s *system) createObject(o client.Object) {
	if err := s.Create(context.Background(), o); err != nil {
		s.t.Fatalf("create %s: %v", o.GetName(), err)
	}
}

// deleteJob deletes a job, without waiting for its tasks.
func (s *system) deleteJob(j *v1alpha1.Job) {
	if err := s.Delete(context.Background(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		s.t.Fatalf("delete job %s: %v", j.Name, err)
	}
}

// newJob returns a job of one group whose tasks run a script as the user of this program.
func (s *system) newJob(name string, count int32, script string) *v1alpha1.Job {
	me, err := user.Current()
	if err != nil {
		s.t.Fatalf("current user: %v", err)
	}
	work := v1alpha1.TaskDefinition{
		Name: "work", Driver: v1alpha1.DriverRawExec, User: me.Username,
		Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/sh", Args: []string{"-c", script}}},
	}
	return &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{{
			Name: "main", TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Count: &count, Tasks: []v1alpha1.TaskDefinition{work}},
		}}},
	}
}
