package supervisor

import (
	"errors"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// KillTask kills the task of a shim that is no longer needed and waits up to wait for the shim to
// exit. It returns nil if no shim is running in dir.
func KillTask(dir string, wait time.Duration) error {
	for until := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		isRunning, err := shim.IsRunning(dir)
		if err != nil || !isRunning {
			return err
		}
		err = shim.ControlRequest{Stop: wire.ReasonStopped}.Send(dir)
		if time.Now().After(until) {
			return errors.Join(fmt.Errorf("the shim in %s is still running after %v", dir, wait), err)
		}
	}
}
