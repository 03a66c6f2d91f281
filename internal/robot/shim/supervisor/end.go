package shims

import (
	"errors"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// End kills the task of a shim that nobody has use for, if there is one, and waits
// for it, for up to wait.
func End(dir string, wait time.Duration) error {
	for until := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		lives, err := shim.Lives(dir)
		if err != nil || !lives {
			return err
		}
		err = shim.Order{Stop: wire.ReasonStopped}.Send(dir)
		if time.Now().After(until) {
			return errors.Join(fmt.Errorf("the shim in %s does not end", dir), err)
		}
	}
}
