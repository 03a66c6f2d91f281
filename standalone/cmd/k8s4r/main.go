// Command k8s4r is the operator's command line with the whole of K8s4r behind
// it: what kubectl-k8s4r can do, and `up` and `kubectl` beside.
package main

import (
	"os"

	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/cli"
	"k8s4r.io/k8s4r/standalone/internal/kubectl"
	"k8s4r.io/k8s4r/standalone/internal/up"
)

func main() {
	// Kubernetes' packages put flags of their own in here, and cobra would
	// offer them with every command.
	pflag.CommandLine = pflag.NewFlagSet("k8s4r", pflag.ContinueOnError)
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr, up.Command(os.Stdout, os.Stderr), kubectl.Command()))
}
