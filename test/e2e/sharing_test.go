package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// A tenant may read no Robots, and may use what an operator of the fleet shares.
func TestSharing_RunsTasksOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "1")
	s.awaitRobot("robot-1", "Online", time.Minute)
	s.tenant("team-b", "bea")
	if out, err := s.kubectl("--as=bea", "-n", "default", "get", "robots"); err == nil {
		t.Fatalf("the tenant sees the fleet:\n%s", out)
	}

	s.submits("hello", "echo hello from $K8S4R_ROBOT")
	const notShared = "none is in this namespace or shared with it"
	s.tenantIsTold("hello-sh-0-main", notShared)
	s.label("share.robot.k8s4r.io/team-b=true")
	s.tenantHas("hello", "completed")
	testkit.EventuallyNoError(t, 20*time.Second, "the log is that of the robot", func() error {
		return s.shows("hello from robot-1", "logs", "-n", "team-b", "hello-sh-0-main")
	})

	s.submits("stays", "sleep 20") // longer than it takes to see it run, also on a busy machine
	s.tenantHas("stays", "running")
	s.label("share.robot.k8s4r.io/team-b-")
	s.submits("late", "true")
	s.tenantIsTold("late-sh-0-main", notShared)
	s.tenantHas("stays", "completed")
	s.tenantIsTold("late-sh-0-main", notShared)
}

// tenant creates a namespace and a user with the role edit in it alone.
func (s *system) tenant(namespace, user string) {
	s.t.Helper()
	if err := s.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		s.t.Fatal(err)
	}
	for _, role := range []string{"k8s4r-view", "k8s4r-edit"} { // a cluster's own edit has both
		s.create(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
}

func (s *system) label(label string) {
	s.t.Helper()
	if out, err := s.kubectl("label", "robot", "robot-1", label); err != nil {
		s.t.Fatalf("label: %v\n%s", err, out)
	}
}

// submits creates a Job of one task as the tenant.
func (s *system) submits(name, script string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 20*time.Second, "the tenant submits "+name, func() error {
		out, err := s.RunProgram("k8s4r", "run", "--as=bea", "-n", "team-b", "--detach", "--name", name, "--", "/bin/sh", "-c", script)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (s *system) tenantIsTold(task, want string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 20*time.Second, "why "+task+" prints "+want, func() error {
		return s.shows(want, "why", "--as=bea", "-n", "team-b", task)
	})
}

// shows returns an error unless the command prints want.
func (s *system) shows(want string, args ...string) error {
	out, err := s.RunProgram("k8s4r", args...)
	if err == nil && !strings.Contains(out, want) {
		return fmt.Errorf("it says %s", out)
	}
	return err
}

func (s *system) tenantHas(job, state string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, time.Minute, "job "+job+" is "+state, func() error {
		var j v1alpha1.Job
		err := s.Get(context.Background(), nameOf("team-b", job), &j)
		if err == nil && j.Status.State != state {
			return fmt.Errorf("it is %q: %s", j.Status.State, j.Status.StatusDescription)
		}
		return err
	})
}
