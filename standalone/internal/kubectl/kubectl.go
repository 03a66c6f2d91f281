// Package kubectl carries the whole of kubectl, for machines that have none.
package kubectl

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways to log in that a kubeconfig may name
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/cmd"

	"k8s4r.io/k8s4r/standalone/internal/up"
)

// Command returns the command `kubectl`, which hands its arguments to kubectl
// as they are. kubectl's own commands end the process when they fail.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl",
		Short:              "kubectl, for machines that have none",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return execute(args)
		},
	}
}

func execute(args []string) error {
	if err := defaultKubeconfig(); err != nil {
		return err
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	kubectl := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		PluginHandler: cmd.NewDefaultPluginHandler([]string{"kubectl"}),
		Arguments:     append([]string{"kubectl"}, args...),
		ConfigFlags:   genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag(),
		IOStreams:     streams,
	})
	kubectl.SetArgs(args)
	return kubectl.Execute()
}

// defaultKubeconfig lets kubectl find what `k8s4r up` wrote, where it would find
// nothing else.
func defaultKubeconfig() error {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || exists(clientcmd.RecommendedHomeFile) {
		return nil
	}
	if own := filepath.Join(up.DefaultDataDir(), "kubeconfig"); exists(own) {
		return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, own)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
