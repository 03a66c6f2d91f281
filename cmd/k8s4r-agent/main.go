// Command k8s4r-agent runs the tasks of one robot.
package main

import (
	"os"

	"k8s4r.io/k8s4r/internal/robot/agent"
)

func main() { os.Exit(agent.Main(os.Args[1:], os.Stdout, os.Stderr)) }
