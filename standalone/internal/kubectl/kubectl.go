// Package kubectl embeds kubectl, for machines that do not have it.
package kubectl

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // authentication plugins that a kubeconfig may name
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/cmd"

	"k8s4r.io/k8s4r/standalone/internal/up"
)

// NewCommand returns the command `kubectl`, which passes its arguments to kubectl unchanged. The
// commands of kubectl exit the process on failure.
func NewCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl",
		Short:              "Run the embedded kubectl",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return runKubectl(args)
		},
	}
}

func runKubectl(args []string) error {
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

// defaultKubeconfig sets KUBECONFIG to the file that `k8s4r up` writes, if kubectl would find no
// other.
func defaultKubeconfig() error {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || fileExists(clientcmd.RecommendedHomeFile) {
		return nil
	}
	if own := filepath.Join(up.DefaultDataDir(), "kubeconfig"); fileExists(own) {
		return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, own)
	}
	return nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
