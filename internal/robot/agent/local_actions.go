package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
)

const stopUsage = `Usage: k8s4r-agent stop TASK [flags]

Stops a task. That is no failure of the task. It does not run on this robot until
k8s4r-agent restart, also after a reboot; the cluster may run it on another robot. It
needs no network, but the task starts again only with contact: use restart without stop
to start its process again. Root, the agent's user and the members of the agent's
localGroup may use it, and the cluster shows who did.

`

const restartUsage = `Usage: k8s4r-agent restart TASK [flags]

Restarts a task at once; its restartPolicy does not count that. A task that was stopped
by k8s4r-agent stop may run on this robot again, but does not start at once: it starts
when the server sends it again, which needs contact. Root, the agent's user and the
members of the agent's localGroup may use it.

`

const maintenanceUsage = `Usage: k8s4r-agent maintenance on --reason TEXT [flags]
       k8s4r-agent maintenance off [flags]

Lets nothing start on this robot, restarts included, until the maintenance is off, also
after a reboot. What runs goes on. It needs no network. Root, the agent's user and
the members of the agent's localGroup may use it, and the cluster shows who did.

`

// reasonFlag is the flag of maintenanceCommand and holdCommand with the reason.
const reasonFlag = "reason"

const holdUsage = `Usage: k8s4r-agent hold [TASK] --reason TEXT [flags]

Keeps rollouts, updates of the agent and preemption from interrupting a task, or any task
of this robot if none is named, until k8s4r-agent release, also after a reboot. The hold
of a task ends with the task. A cancel, a drain, a scale-down and other orders of users
act in spite of it. It needs no network. Root, the agent's user and the members of the
agent's localGroup may use it, and the cluster shows who did.

`

const releaseUsage = `Usage: k8s4r-agent release [TASK] [flags]
       k8s4r-agent release --all [flags]

Ends the hold of a task, or that of the whole robot if none is named. With --all it ends
every hold of this robot. Interruptions that waited for it may follow at once.

`

// actOnTask stops or restarts a task.
func actOnTask(action, usage string, args []string, stdout, stderr io.Writer) int {
	c := newLocalCommand("k8s4r-agent "+action, usage)
	err := c.parseLocal(args, stdout)
	if err == nil && len(c.args) != 1 {
		err = errors.New("the name of one task is required, as k8s4r-agent tasks prints it")
	}
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	message, err := c.client().ActOnTask(context.Background(), action, c.args[0])
	return printAnswer(stdout, stderr, message, err)
}

// maintenanceCommand begins or ends the maintenance of the robot.
func maintenanceCommand(args []string, stdout, stderr io.Writer) int {
	c := newLocalCommand("k8s4r-agent maintenance", maintenanceUsage)
	reason := c.String(reasonFlag, "", "`text` that explains the maintenance to others")
	err := c.parseLocal(args, stdout)
	switch {
	case err != nil:
	case len(c.args) != 1 || c.args[0] != "on" && c.args[0] != "off":
		err = errors.New("on or off is required")
	case c.args[0] == "on" && *reason == "":
		err = fmt.Errorf("--%s is required", reasonFlag)
	}
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	message, err := c.client().SetMaintenance(context.Background(), c.args[0] == "on", *reason)
	return printAnswer(stdout, stderr, message, err)
}

// holdCommand keeps a task, or all tasks of the robot, from being interrupted.
func holdCommand(args []string, stdout, stderr io.Writer) int {
	c := newLocalCommand("k8s4r-agent hold", holdUsage)
	reason := c.String(reasonFlag, "", "`text` that explains the hold to others")
	err := c.parseLocal(args, stdout)
	task, several := c.optionalTask()
	switch {
	case err != nil:
	case several != nil:
		err = several
	case *reason == "":
		err = fmt.Errorf("--%s is required", reasonFlag)
	}
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	message, err := c.client().Hold(context.Background(), task, *reason)
	return printAnswer(stdout, stderr, message, err)
}

// releaseCommand ends the hold of a task, of the robot, or all holds.
func releaseCommand(args []string, stdout, stderr io.Writer) int {
	c := newLocalCommand("k8s4r-agent release", releaseUsage)
	all := c.Bool("all", false, "end every hold of this robot")
	err := c.parseLocal(args, stdout)
	task, several := c.optionalTask()
	switch {
	case err != nil:
	case several != nil:
		err = several
	case *all && task != "":
		err = errors.New("name a task, or use --all")
	}
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	message, err := c.client().Release(context.Background(), task, *all)
	return printAnswer(stdout, stderr, message, err)
}

// optionalTask returns the only argument. It is empty if there is none.
func (c *localCommand) optionalTask() (string, error) {
	switch len(c.args) {
	case 0:
		return "", nil
	case 1:
		return c.args[0], nil
	}
	return "", errors.New("at most one task can be named, as k8s4r-agent tasks prints it")
}

func printAnswer(stdout, stderr io.Writer, message string, err error) int {
	if err != nil {
		return failCommand(stderr, err)
	}
	fmt.Fprintln(stdout, message)
	return exitOK
}
