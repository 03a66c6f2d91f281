package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// writePolicy writes the policy file of a robot that allows these commands.
func writePolicy(t *testing.T, path, commands string) {
	t.Helper()
	text := "apiVersion: robot.k8s4r.io/v1alpha1\nkind: RobotPolicy\nallow: {commands: [" + commands + "]}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPolicy_RobotDecidesWhatItRuns shows that no task is placed on a robot whose policy does not
// allow it, and that the robot refuses one that is sent to it nevertheless, which then runs elsewhere.
func TestPolicy_RobotDecidesWhatItRuns(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a policy file must belong to root")
	}
	s := start(t, "--robots", "0")
	path := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, path, "/bin/true")
	// The next heartbeat, which would register a changed policy, comes after this test.
	agent(t, s, "guarded", "--policy", path, "--heartbeat", "2m")
	s.awaitRobot("guarded", "Online", time.Minute)
	s.awaitPolicy("/bin/true")

	t.Run("no task is placed that the robot does not allow", func(t *testing.T) {
		s := s.in(t)
		s.create(jobOf("waits", 1, shell("work", "true")))
		const want = `0 of 1 robots: 1: its policy does not allow config.execConfig.command /bin/sh (allow.commands)`
		testkit.EventuallyNoError(t, time.Minute, "why explains it", func() error { return s.shows(want, "why", "waits-main-0-work") })
		status := s.task("waits-main-0-work").Status
		if p := status.Placement; status.Attempt != 0 || p == nil || len(p.Rejections) != 1 ||
			p.Rejections[0] != (v1alpha1.Rejection{Check: "Policy", Robots: 1, Want: "config.execConfig.command /bin/sh", Got: "allow.commands"}) {
			t.Errorf("status %+v with %+v, want no attempt and the rejection as data", status, p)
		}
	})
	t.Run("the robot refuses what its policy no longer allows", func(t *testing.T) {
		s := s.in(t)
		agent(t, s, "open")
		s.awaitJob("waits", "completed", time.Minute)
		if out, err := s.RunProgram("k8s4r", "robot", "cordon", "open"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		writePolicy(t, path, "/bin/false")
		task := shell("work", "")
		task.Config.ExecConfig = &v1alpha1.ExecConfig{Command: "/bin/true"}
		s.create(jobOf("moves", 1, task))
		s.awaitPolicy("/bin/false") // the refusal registers it
		if out, err := s.RunProgram("k8s4r", "robot", "uncordon", "open"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		s.awaitJob("moves", "completed", time.Minute)
		a := s.task("moves-main-0-work").Status.Attempts
		if len(a) != 2 || a[0].Robot != "guarded" || a[0].Reason != "PolicyViolation" || a[0].StartedAt != nil || a[1].Robot != "open" {
			t.Errorf("attempts %+v, want one that the robot guarded refused and one on the robot open", a)
		}
	})
}

// awaitPolicy waits until the robot guarded has registered a policy with this command.
func (s *system) awaitPolicy(command string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, time.Minute, "the policy is registered", func() error {
		robot := &v1alpha1.Robot{}
		err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "guarded"}, robot)
		if p := robot.Status.Policy; err == nil && (p == nil || !slices.Equal(p.Allow.Commands, []string{command})) {
			return fmt.Errorf("policy %+v", p)
		}
		return err
	})
}
