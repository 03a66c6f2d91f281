// Package e2e tests K8s4r as its users have it: the built programs, a real API
// server, a real broker, real processes.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// system is a whole K8s4r with a client for its API.
type system struct {
	*testkit.Up
	t *testing.T
	client.Client
}

// start starts a system. Pods of systems that run side by side have different addresses.
func start(t *testing.T, args ...string) *system {
	t.Helper()
	return startWith(t, testkit.StartUp, args)
}

// startLegacy starts a system that also accepts legacy agents and clients without a certificate,
// for tests of these and for tests that listen at the broker.
func startLegacy(t *testing.T, args ...string) *system {
	t.Helper()
	return startWith(t, testkit.StartLegacyUp, args)
}

func startWith(t *testing.T, startUp func(testing.TB, ...string) *testkit.Up, args []string) *system {
	t.Helper()
	podRange := fmt.Sprintf("10.245.%d.0/24", systems.Add(1)%200)
	up := startUp(t, append([]string{"--pod-range", podRange}, args...)...)
	return &system{Up: up, t: t, Client: testkit.NewClient(t, up.RESTConfig())}
}

var systems atomic.Uint32

// kubectl runs the kubectl within k8s4r and returns both its streams.
func (s *system) kubectl(args ...string) (string, error) {
	return s.RunProgram("k8s4r", append([]string{"kubectl"}, args...)...)
}

// apply applies a manifest and fails the test if it is rejected.
func (s *system) apply(manifest string) {
	s.t.Helper()
	if out, err := s.tryApply(manifest); err != nil {
		s.t.Fatalf("apply: %v\n%s\n%s", err, out, manifest)
	}
}

func (s *system) tryApply(manifest string) (string, error) {
	file := filepath.Join(s.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return s.kubectl("apply", "-f", file)
}

func (s *system) task(name string) *v1alpha1.Task {
	s.t.Helper()
	task := &v1alpha1.Task{}
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, task); err != nil {
		s.t.Fatalf("get task %s: %v", name, err)
	}
	return task
}

func (s *system) robot(name string) *v1alpha1.Robot {
	s.t.Helper()
	robot := &v1alpha1.Robot{}
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, robot); err != nil {
		s.t.Fatalf("get robot %s: %v", name, err)
	}
	return robot
}

func (s *system) tasksOf(job string) []v1alpha1.Task {
	s.t.Helper()
	list := &v1alpha1.TaskList{}
	if err := s.List(context.Background(), list, client.InNamespace("default"), client.MatchingLabels{v1alpha1.LabelJob: job}); err != nil {
		s.t.Fatalf("list tasks of %s: %v", job, err)
	}
	return list.Items
}

// awaitJob blocks until the job has this state. It tolerates short outages of the API server.
func (s *system) awaitJob(name, state string, within time.Duration) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, within, "job "+name+" becomes "+state, func() error {
		job := &v1alpha1.Job{}
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, job); err != nil {
			return err
		}
		if job.Status.State != state {
			return fmt.Errorf("it is %q (%s): %+v", job.Status.State, job.Status.StatusDescription, job.Status.TaskCounts)
		}
		return nil
	})
}

func (s *system) awaitTask(name, state string, within time.Duration) *v1alpha1.Task {
	s.t.Helper()
	task := &v1alpha1.Task{}
	testkit.EventuallyNoError(s.t, within, "task "+name+" becomes "+state, func() error {
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, task); err != nil {
			return err
		}
		if task.Status.State != state {
			return fmt.Errorf("it is %q on %q: %s %s", task.Status.State, task.Spec.TargetRobot, task.Status.Reason, task.Status.Message)
		}
		return nil
	})
	return task
}

func (s *system) awaitRobot(name, phase string, within time.Duration) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, within, "robot "+name+" becomes "+phase, func() error {
		robot := &v1alpha1.Robot{}
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, robot); err != nil {
			return err
		}
		if robot.Status.Phase != phase {
			return fmt.Errorf("it is %q: %s", robot.Status.Phase, robot.Status.Message)
		}
		return nil
	})
}

func (s *system) awaitGone(obj client.Object, within time.Duration) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, within, obj.GetName()+" is gone", func() error {
		err := s.Get(context.Background(), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is still there: %v", obj.GetFinalizers())
	})
}

func (s *system) create(obj client.Object) {
	s.t.Helper()
	if obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	if err := s.Create(context.Background(), obj); err != nil {
		s.t.Fatalf("create %s: %v", obj.GetName(), err)
	}
}

func (s *system) delete(obj client.Object) {
	s.t.Helper()
	if err := s.Delete(context.Background(), obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		s.t.Fatalf("delete %s: %v", obj.GetName(), err)
	}
}

// me returns the account that runs the test.
func me() string {
	u, err := user.Current()
	if err != nil {
		panic(err)
	}
	return u.Username
}

// shell returns a task that runs a script on the robot under the account of the test, which can
// read the files that it writes.
func shell(name, script string) v1alpha1.TaskDefinition {
	return v1alpha1.TaskDefinition{
		Name: name, Driver: v1alpha1.DriverRawExec, User: me(),
		Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/sh", Args: []string{"-c", script}}},
	}
}

// jobOf returns a Job of one group.
func jobOf(name string, count int32, tasks ...v1alpha1.TaskDefinition) *v1alpha1.Job {
	return &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{{
			Name: "main", TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Count: &count, Tasks: tasks},
		}}},
	}
}

// mosquitto starts Debian's broker on a free port of this machine.
func mosquitto(t *testing.T) string {
	t.Helper()
	return testkit.NewMosquitto(t).URL()
}

// hostPort returns the address in a URL.
func hostPort(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// simulateRobot starts a simulated robot that has joined.
func (s *system) simulateRobot(cfg simrobot.Config) *simrobot.Robot {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if cfg.TLS, err = testkit.JoinRobot(ctx, s, cfg.RobotID); err != nil {
		s.t.Fatal(err)
	}
	cfg.Broker = s.MQTTSURL
	robot, err := simrobot.Start(ctx, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(robot.Stop)
	return robot
}
