// Command k8s4r contains all of K8s4r: the commands of kubectl-k8s4r, `up`, which runs the whole
// system, `backup`, `restore` and `ca` for its data, and `kubectl`.
package main

import (
	"os"

	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/cli"
	"k8s4r.io/k8s4r/standalone/internal/backup"
	"k8s4r.io/k8s4r/standalone/internal/kubectl"
	"k8s4r.io/k8s4r/standalone/internal/up"
)

func main() {
	// Kubernetes packages register flags here, and cobra would add them to every command.
	pflag.CommandLine = pflag.NewFlagSet("k8s4r", pflag.ContinueOnError)
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr, up.NewCommand(os.Stdout, os.Stderr), up.NewCACommand(os.Stdout), kubectl.NewCommand(),
		backup.NewBackupCommand(up.DefaultDataDir(), os.Stdout), backup.NewRestoreCommand(up.DefaultDataDir(), os.Stdout)))
}
