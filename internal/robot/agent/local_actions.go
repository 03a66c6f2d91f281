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

// reasonFlag is the flag of maintenanceCommand with its reason.
const reasonFlag = "reason"

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

func printAnswer(stdout, stderr io.Writer, message string, err error) int {
	if err != nil {
		return failCommand(stderr, err)
	}
	fmt.Fprintln(stdout, message)
	return exitOK
}
