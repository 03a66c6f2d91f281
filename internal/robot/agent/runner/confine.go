package runner

import (
	"fmt"
	"os"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// driverRawExec is the driver whose tasks are not isolated: only their resources are limited.
const driverRawExec = "raw_exec"

// driverDocker is the driver whose tasks are isolated by the Docker engine.
const driverDocker = "docker"

// confineRun returns the confinement of an attempt as far as the host supports it, and
// whether it has PID and IPC namespaces of its own.
func (r *Runner) confineRun(attempt *attempt) (c isolation.Confinement, namespaces bool, err error) {
	task := attempt.task.Spec
	if c.User, err = isolation.LookupTaskUser(task.User, r.taskUser); err != nil {
		return c, false, err
	}
	if task.Driver != driverRawExec {
		namespaces = r.isolateRun(&c, attempt)
	}
	if err := r.chownTaskDir(&c, attempt); err != nil {
		return c, false, err
	}
	if r.host.Allows(isolation.FactCgroup) {
		limits, err := resourceLimits(task)
		if err != nil {
			return c, false, err
		}
		if c.Cgroup, err = r.host.Tree.Create(cgroupName(attempt.task.Metadata.UID, attempt.number), limits); err != nil {
			return c, false, err
		}
	}
	return c, namespaces, nil
}

// chownTaskDir makes the task's user the owner of its directory and ensures that the user can
// reach it: a parent that is closed to the user is replaced, in the task's mounts, by an
// empty directory that leads there.
func (r *Runner) chownTaskDir(c *isolation.Confinement, attempt *attempt) error {
	if c.User == nil {
		return nil
	}
	if missing := r.host.MissingFacts([]string{string(isolation.FactUser)}); c.User.UID != uint32(os.Geteuid()) && len(missing) > 0 {
		return fmt.Errorf("user: tasks cannot run as %s here: %s; %s", c.User.Name, missing[0].Reason, missing[0].Remedy)
	}
	work := r.dirs.WorkDir(attempt.task.Metadata.UID, attempt.number)
	if err := os.Chown(work, int(c.User.UID), int(c.User.GID)); err != nil {
		return fmt.Errorf("change the owner of the task's directory: %w", err)
	}
	switch closed := c.User.FirstForbiddenDir(work); {
	case closed == "", c.Mounts != nil && r.dirs.contains(closed): // that is hidden already
	case c.Mounts == nil:
		return fmt.Errorf("user: %s cannot reach the task's directory because %s is closed to other users: "+
			"chmod o+x it, move the agent's state (--state-dir, or --data-dir of k8s4r up), or name another user", c.User.Name, closed)
	default:
		c.Mounts.Hidden = append([]string{closed}, c.Mounts.Hidden...)
	}
	return nil
}

// confineSetUp returns the confinement of the set-up of a container task. The user that the
// task names is one of its image, so the set-up runs as the default user.
func (r *Runner) confineSetUp(attempt *attempt) (c isolation.Confinement, err error) {
	if c.User, err = isolation.LookupUser(r.taskUser); err != nil || c.User == nil {
		return c, err
	}
	r.isolateRun(&c, attempt)
	return c, r.chownTaskDir(&c, attempt)
}

// containerOptions returns the options for a task that the engine isolates.
func (r *Runner) containerOptions(attempt *attempt) (c driver.Contained, err error) {
	c.Attempt, c.User, c.Shared = r.driverAttempt(attempt), attempt.task.Spec.User, r.dirs.replicaDiskDir(attempt.task)
	if c.TaskUser, err = r.containerUser(); err != nil {
		return c, err
	}
	c.Limits, err = resourceLimits(attempt.task.Spec)
	return c, err
}

// containerUser returns the default user in the form UID:GID, since images do not have its name.
func (r *Runner) containerUser() (string, error) {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	u, err := isolation.LookupUser(r.taskUser)
	if u != nil {
		uid, gid = u.UID, u.GID
	}
	return fmt.Sprintf("%d:%d", uid, gid), err
}

// isolateRun separates the task from the robot and from other tasks. It reports whether the
// task gets PID and IPC namespaces.
func (r *Runner) isolateRun(c *isolation.Confinement, attempt *attempt) (namespaces bool) {
	allows := r.host.Allows
	c.NoNewPrivileges, c.Seccomp, c.Rlimits = allows(isolation.FactNoNewPrivileges), allows(isolation.FactSeccomp), allows(isolation.FactRlimits)
	if allows(isolation.FactMountNamespace) {
		c.Mounts = &isolation.Mounts{
			ReadOnly: allows(isolation.FactReadOnlySystem), Hidden: []string{string(r.dirs)},
			Writable: []string{r.dirs.WorkDir(attempt.task.Metadata.UID, attempt.number)},
		}
		if disk := r.dirs.replicaDiskDir(attempt.task); disk != "" {
			c.Mounts.Writable = append(c.Mounts.Writable, disk)
		}
		if allows(isolation.FactPrivateTmp) {
			c.Mounts.Tmp = r.dirs.replicaTmpDir(attempt.task)
		}
	}
	return allows(isolation.FactPIDNamespace) && allows(isolation.FactIPCNamespace)
}

// resourceLimits returns the limits of a task, which equal its requests.
func resourceLimits(t wire.TaskSpec) (l isolation.Limits, err error) {
	if t.Resources == nil {
		return l, nil
	}
	if l.CPU, err = t.Resources.CPU.RoundUpTo(1000); err != nil {
		return l, fmt.Errorf("resources.cpu: %w", err)
	}
	l.CPUWeight = l.CPU
	if l.Memory, err = t.Resources.Memory.RoundUpTo(1); err != nil {
		return l, fmt.Errorf("resources.memory: %w", err)
	}
	return l, nil
}

// cgroupName returns the name of an attempt's control group.
func cgroupName(uid string, attempt int32) string { return fmt.Sprintf("%s-%d", uid, attempt) }

// checkIsolation returns an error if the task requires isolation that this robot does not support.
func (r *Runner) checkIsolation(t wire.TaskSpec) error {
	if t.Isolation == nil {
		return nil
	}
	var sentences []string
	for _, l := range r.host.MissingFacts(t.Isolation.Required) {
		sentences = append(sentences, fmt.Sprintf("%s: %s", l.Fact, l.Reason))
	}
	if len(sentences) == 0 {
		return nil
	}
	return fmt.Errorf("isolation.required: this robot does not support %s", strings.Join(sentences, "; "))
}
