package cli

import (
	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/core/actions"
)

func cordonCommand(d *deps) *cobra.Command {
	cmd := robotActionCommand(d, "cordon", actions.Cordon.Apply)
	cmd.Short = "Cordon robots so that they get no new tasks"
	cmd.Long = `Marks robots as unschedulable: they get no new tasks, and running tasks continue.
Requires full names; prefixes are not accepted.`
	return cmd
}

func unlockCommand(d *deps) *cobra.Command {
	cmd := robotActionCommand(d, "unlock", actions.UnlockMaintenance)
	cmd.Short = "End the maintenance of robots"
	cmd.Long = `Ends the maintenance that a person at the robot has begun (k8s4r-agent maintenance
on). A robot without contact ends it when it reconnects. This needs the verb unlock on
the robot.
Requires full names; prefixes are not accepted.`
	return cmd
}

func drainCommand(d *deps) *cobra.Command {
	cmd := robotActionCommand(d, "drain", actions.Drain.Apply)
	cmd.Short = "Drain robots so that their tasks run on other robots"
	cmd.Long = `Drains robots: they get no new tasks, and their tasks are stopped and run again on
other robots. Use uncordon to revert it.
Requires full names; prefixes are not accepted.`
	return cmd
}

func uncordonCommand(d *deps) *cobra.Command {
	cmd := robotActionCommand(d, "uncordon", actions.Uncordon.Apply)
	cmd.Short = "Uncordon robots so that they get new tasks again"
	cmd.Long = `Reverts cordon and drain: the robots may get new tasks again.
Requires full names; prefixes are not accepted.`
	return cmd
}
