// Command k8s4r-shim runs the shims of tasks that are processes of the robot (package shim). The agent
// carries it (package program).
package main

import (
	"fmt"
	"os"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

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
