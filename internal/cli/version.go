package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/protocol/version"
)

func versionCommand(d *deps) *cobra.Command {
	var conn connection
	var clientOnly bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the client and the API server",
		Example: "  " + d.program + " version --client",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(d.Out, "client: %s\n", version.Version)
			if clientOnly {
				return nil
			}
			return d.withCluster(&conn, func(c *cluster) error { return printServerVersion(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "print only the client version; does not connect to the API server")
	conn.addFlags(cmd.Flags())
	return cmd
}

func printServerVersion(ctx context.Context, d *deps, c *cluster) error {
	v, err := c.version(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "server: %s (Kubernetes)\n", v)
	return nil
}
