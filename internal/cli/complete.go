package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completeWithin bounds how long the TAB key may hang on a dead cluster.
const completeWithin = 2 * time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeJobs offers the names of Jobs for up to most arguments.
func (d *deps) completeJobs(conn *connection, most int) completion {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return d.namesOf(cmd.Context(), conn, jobKind, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeGet offers the types, and then the names of objects of the type.
func (d *deps) completeGet(conn *connection) completion {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(given) == 0 {
			return []string{"jobs", "groups", "tasks", "robots", "all"}, cobra.ShellCompDirectiveNoFileComp
		}
		k, err := kindCalled(given[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return d.namesOf(cmd.Context(), conn, k, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf is empty when the cluster cannot be asked: the TAB key has no place
// for an error.
func (d *deps) namesOf(ctx context.Context, conn *connection, k kind, prefix string) []string {
	c, err := d.connect(conn)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	objects, err := listOf(ctx, c, k, client.InNamespace(c.namespace))
	if err != nil {
		return nil
	}
	var names []string
	for _, o := range objects {
		if strings.HasPrefix(o.GetName(), prefix) {
			names = append(names, o.GetName())
		}
	}
	return names
}
