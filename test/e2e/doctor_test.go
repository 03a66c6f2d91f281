package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestDoctor_PassesOnAHealthySystem runs doctor of both programs against `k8s4r up`.
func TestDoctor_PassesOnAHealthySystem(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0")
	testkit.EventuallyNoError(t, time.Minute, "manager and server have renewed their leases", func() error {
		if out, err := s.RunProgram("k8s4r", "doctor"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	for _, program := range []string{"k8s4r", "kubectl-k8s4r"} {
		out, err := s.RunProgram(program, "doctor", "-o", "json")
		var said struct {
			Worst    string
			Findings []struct{ Level, Check, Says string }
		}
		if bad := json.Unmarshal([]byte(out), &said); err != nil || bad != nil || said.Worst != "OK" {
			t.Errorf("%s doctor: %v, %v\n%s", program, err, bad, out)
		}
		checked := map[string]bool{}
		for _, f := range said.Findings {
			checked[f.Check] = true
		}
		for _, check := range []string{"API server", "CRD jobs.batch.volcano.sh", "manager", "server", "Volcano's controllers", "webhook"} {
			if !checked[check] {
				t.Errorf("%s doctor has not looked at %s\n%s", program, check, out)
			}
		}
	}
	if out, err := s.RunProgram("k8s4r", "kubectl", "delete", "crd", "cronjobflows.flow.k8s4r.io"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := s.RunProgram("k8s4r", "doctor")
	if exitCode(err) != 1 || !strings.Contains(out, "FAIL  CRD cronjobflows.flow.k8s4r.io: is not installed") {
		t.Errorf("without a definition: %v\n%s", err, out)
	}
}
