package runner

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// How long the robot was off is not known after a reboot, unless its clock has a battery: another robot may run
// the task.
func TestBootFence_HoldsTasksWithASelfStopDeadline(t *testing.T) {
	deadline := func(t *wire.Task) { t.Spec.StopOnRobotAfter = wire.Duration(time.Minute) }
	for name, test := range map[string]struct {
		changes []func(*wire.Task)
		goesOn  bool
		silence time.Duration
		starts  bool
	}{
		"without a deadline":                                 {starts: true},
		"with a deadline":                                    {changes: []func(*wire.Task){deadline}},
		"with a deadline that goes on":                       {changes: []func(*wire.Task){deadline}, goesOn: true, silence: 50 * time.Second, starts: true},
		"with a deadline that has passed in an earlier boot": {changes: []func(*wire.Task){deadline}, goesOn: true, silence: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			x := waitingTest(t, test.changes...)
			x.goesOn, x.contact.silence = test.goesOn, test.silence
			x.rebootRobot(shim.State{})
			x.pass(10 * time.Second)
			if !test.starts {
				x.requireEnd(wire.ReasonSelfStopped, 1)
				x.requireStarts("after the reboot", 0)
				return
			}
			x.requireStarts("after the reboot", 1)
		})
	}
}
