package cli

import (
	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/core/actions"
)

func cordonCommand(d *deps) *cobra.Command {
	cmd := robotVerb(d, "cordon", actions.Cordon.Apply)
	cmd.Short = "Keep new tasks away from robots"
	cmd.Long = `Marks the robots so that they are given no new task. What runs on them goes on.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func drainCommand(d *deps) *cobra.Command {
	cmd := robotVerb(d, "drain", actions.Drain.Apply)
	cmd.Short = "Keep new tasks away from robots, and let theirs run elsewhere"
	cmd.Long = `Marks the robots so that they are given no new task, and stops what runs on them:
it goes back and runs again on other robots. uncordon takes it back.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func uncordonCommand(d *deps) *cobra.Command {
	cmd := robotVerb(d, "uncordon", actions.Uncordon.Apply)
	cmd.Short = "Let robots have new tasks again"
	cmd.Long = `Takes back what cordon and drain did: the robots may be given new tasks again.
Names must be whole: the beginning is not enough here.`
	return cmd
}
