// Command kubectl-k8s4r is the command line for users and operators. On the PATH it is also the
// kubectl plugin `kubectl k8s4r`.
package main

import (
	"os"

	"k8s4r.io/k8s4r/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
