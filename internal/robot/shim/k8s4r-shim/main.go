// Command k8s4r-shim runs the shims of tasks that are processes of the robot (package shim). The agent
// carries it (package program).
package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// init names the process, which the kernel has named after the descriptor that it was started from.
func init() {
	name := []byte("k8s4r-shim\x00")
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
}

func main() {
	args := os.Args[1:]
	if len(args) == 1 && args[0] == shim.CheckSubcommand {
		return
	}
	status, ok := shim.Main(args, func(string) driver.Set { return driver.NewProcessSet() })
	if !ok {
		fmt.Fprintln(os.Stderr, "k8s4r-shim: only the agent starts this program")
		status = 2
	}
	os.Exit(status)
}
