// Command kubectl-k8s4r is the operator's command line. On the PATH it is also
// kubectl's plugin: `kubectl k8s4r`.
package main

import (
	"os"

	"k8s4r.io/k8s4r/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
