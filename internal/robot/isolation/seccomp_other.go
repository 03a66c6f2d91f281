//go:build !amd64 && !arm64

package isolation

import "errors"

var errNoFilter = errors.New("there is no system call filter for this processor architecture")

func filterCalls() error { return errNoFilter }

func (f Confinement) forkFiltered(Command) (pid, pidfd int, err error) {
	return 0, -1, &SetupError{"system call filter", errNoFilter}
}
