package cli

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// completeWithin bounds how long the TAB key blocks when the cluster does not respond.
const completeWithin = 2 * time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeNames completes names of objects for the first most arguments.
func (d *deps) completeNames(conn *connection, k kind, most int) completion {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return d.listNames(cmd.Context(), conn, k, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// anyNumber is for verbs that take any number of arguments.
const anyNumber = math.MaxInt

// completeGet completes the types, and then the names of objects of the type.
func (d *deps) completeGet(conn *connection) completion {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(given) == 0 {
			return getTypes, cobra.ShellCompDirectiveNoFileComp
		}
		k, err := findKind(given[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return d.listNames(cmd.Context(), conn, k, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTasksOf completes the tasks of the first Job on the command line.
func (d *deps) completeTasksOf(conn *connection) completion {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ofFirst := func(o client.Object) bool { return len(given) > 0 && o.(*robotv1.Task).Spec.JobName == given[0] }
		return d.listMatchingNames(cmd.Context(), conn, taskKind, prefix, ofFirst), cobra.ShellCompDirectiveNoFileComp
	}
}

func (d *deps) listNames(ctx context.Context, conn *connection, k kind, prefix string) []string {
	return d.listMatchingNames(ctx, conn, k, prefix, func(client.Object) bool { return true })
}

// listMatchingNames returns the names of matching objects. It returns none if the cluster cannot be
// queried: shell completion cannot show an error.
func (d *deps) listMatchingNames(ctx context.Context, conn *connection, k kind, prefix string, match func(client.Object) bool) []string {
	c, err := d.connect(conn)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	objects, err := listObjects(ctx, c, k, client.InNamespace(c.namespace))
	if err != nil {
		return nil
	}
	var names []string
	for _, o := range objects {
		if strings.HasPrefix(o.GetName(), prefix) && match(o) {
			names = append(names, o.GetName())
		}
	}
	return names
}
