package shim_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// lastSeenVariable holds the last acknowledged heartbeat for a test that runs in a time namespace.
const lastSeenVariable = "K8S4R_TEST_LAST_SEEN"

// The time in which a machine sleeps counts. In a time namespace the boot clock is ahead, as after a
// sleep, and the monotonic clock, which stands still meanwhile, is not.
func TestShim_SelfStopDeadlineCountsSleep(t *testing.T) {
	if output, err := exec.Command("unshare", "--time", "--boottime", "1", "true").CombinedOutput(); err != nil {
		t.Skipf("needs root and a kernel with time namespaces: unshare --time: %v: %s", err, output)
	}
	for _, c := range []struct{ name, clock, want string }{
		{"the machine slept for an hour", "--boottime", wire.ReasonSelfStopped},
		{"only the monotonic clock is an hour ahead", "--monotonic", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inside := exec.Command("unshare", "--time", c.clock, "3600", "--", os.Args[0], "-test.v", "-test.run", "^TestShim_RunsTaskInTimeNamespace$")
			inside.Env = append(os.Environ(), lastSeenVariable+"="+shim.SinceBoot().String())
			output, err := inside.CombinedOutput()
			if err != nil || !strings.Contains(string(output), `stopped because of "`+c.want+`"`) {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// TestShim_RunsTaskInTimeNamespace is run by TestShim_SelfStopDeadlineCountsSleep.
func TestShim_RunsTaskInTimeNamespace(t *testing.T) {
	text := os.Getenv(lastSeenVariable)
	if text == "" {
		t.Skip("runs only in a time namespace")
	}
	last, err := time.ParseDuration(text)
	must(t, err)
	c := spawn(t, "true", func(s *shim.Spec) {
		s.SelfStopAfter = 30 * time.Minute
		writeLastSeen(t, s.LastSeenDir, last)
	})
	s := c.awaitExit()
	if s.Exit == nil || s.MayHaveStarted == (s.Exit.StopReason != "") {
		t.Fatalf("state %+v", s)
	}
	t.Logf("stopped because of %q", s.Exit.StopReason)
}
