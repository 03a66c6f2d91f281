package agent

import (
	"fmt"
	"os"
	"strings"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/wire"
)

// rawExec is the driver whose tasks see and may do all that the agent may: only
// their processes are counted and bounded.
const rawExec = "raw_exec"

// docker is the driver whose tasks are confined by their engine.
const docker = "docker"

// confinement is what bounds an attempt on this robot, as far as the host allows
// of it, and whether it has namespaces of its own.
func (r *runner) confinement(run *run) (c isolation.Confinement, namespaces bool, err error) {
	task := run.task.Spec
	if c.User, err = isolation.LookupUser(or(task.User, r.taskUser)); err != nil {
		return c, false, err
	}
	if task.Driver != rawExec {
		namespaces = r.isolate(&c, run)
	}
	if err := r.admit(&c, run); err != nil {
		return c, false, err
	}
	if r.host.Allows(isolation.FactCgroup) {
		limits, err := limitsOf(task)
		if err != nil {
			return c, false, err
		}
		if c.Cgroup, err = r.host.Tree.Create(cgroupName(run.task.Metadata.UID, run.attempt), limits); err != nil {
			return c, false, err
		}
	}
	return c, namespaces, nil
}

// admit makes the task's directory its user's, and sees to it that the user gets
// there: what is closed to it on the way, it sees as an empty directory that leads
// there, and misses nothing.
func (r *runner) admit(c *isolation.Confinement, run *run) error {
	if c.User == nil {
		return nil
	}
	if lacks := r.host.Missing([]string{string(isolation.FactUser)}); c.User.UID != uint32(os.Geteuid()) && len(lacks) > 0 {
		return fmt.Errorf("user: tasks cannot run as %s here: %s; %s", c.User.Name, lacks[0].Why, lacks[0].How)
	}
	work := r.places.work(run.task.Metadata.UID, run.attempt)
	if err := os.Chown(work, int(c.User.UID), int(c.User.GID)); err != nil {
		return fmt.Errorf("give the task's directory to its user: %w", err)
	}
	switch shut := c.User.Shut(work); {
	case shut == "", c.Mounts != nil && r.places.have(shut): // that is hidden already
	case c.Mounts == nil:
		return fmt.Errorf("user: %s does not get to the task's directory, for %s is closed to others: "+
			"chmod o+x it, have the agent keep its state elsewhere (--state-dir, or --data-dir of k8s4r up), or name a user who does", c.User.Name, shut)
	default:
		c.Mounts.Hidden = append([]string{shut}, c.Mounts.Hidden...)
	}
	return nil
}

// setUpConfinement is what bounds the setting up of a task that an engine confines
// afterwards. The user that it names is one of its image.
func (r *runner) setUpConfinement(run *run) (c isolation.Confinement, err error) {
	if c.User, err = isolation.LookupUser(r.taskUser); err != nil || c.User == nil {
		return c, err
	}
	r.isolate(&c, run)
	return c, r.admit(&c, run)
}

// contained is what the engine is to know of an attempt, whose tasks it confines
// itself.
func (r *runner) contained(run *run) (c driver.Contained, err error) {
	c.Attempt, c.User, c.Shared = r.name(run), run.task.Spec.User, r.places.disk(run.task)
	c.Limits, err = limitsOf(run.task.Spec)
	return c, err
}

// isolate shuts the task off from the robot and from other tasks.
func (r *runner) isolate(c *isolation.Confinement, run *run) (namespaces bool) {
	allows := r.host.Allows
	c.NoNewPrivileges, c.Seccomp, c.Rlimits = allows(isolation.FactNoNewPrivileges), allows(isolation.FactSeccomp), allows(isolation.FactRlimits)
	if allows(isolation.FactMountNamespace) {
		c.Mounts = &isolation.Mounts{
			ReadOnly: allows(isolation.FactReadOnlySystem), Hidden: []string{r.places.state},
			Writable: []string{r.places.work(run.task.Metadata.UID, run.attempt)},
		}
		if disk := r.places.disk(run.task); disk != "" {
			c.Mounts.Writable = append(c.Mounts.Writable, disk)
		}
		if allows(isolation.FactPrivateTmp) {
			c.Mounts.Tmp = r.places.tmp(run.task)
		}
	}
	return allows(isolation.FactPIDNamespace) && allows(isolation.FactIPCNamespace)
}

// limitsOf are the bounds of what a task may use: what it asks for.
func limitsOf(t wire.TaskSpec) (l isolation.Limits, err error) {
	if t.Resources == nil {
		return l, nil
	}
	if l.CPU, err = t.Resources.CPU.Times(1000); err != nil {
		return l, fmt.Errorf("resources.cpu: %w", err)
	}
	l.CPUWeight = l.CPU
	if l.Memory, err = t.Resources.Memory.Times(1); err != nil {
		return l, fmt.Errorf("resources.memory: %w", err)
	}
	return l, nil
}

// cgroupName is that of an attempt's control group.
func cgroupName(uid string, attempt int32) string { return fmt.Sprintf("%s-%d", uid, attempt) }

// lacks refuses a task that insists on isolation which this robot does not have.
func (r *runner) lacks(t wire.TaskSpec) error {
	if t.Isolation == nil {
		return nil
	}
	var sentences []string
	for _, l := range r.host.Missing(t.Isolation.Required) {
		sentences = append(sentences, fmt.Sprintf("%s: %s", l.Fact, l.Why))
	}
	if len(sentences) == 0 {
		return nil
	}
	return fmt.Errorf("isolation.required: this robot does not have %s", strings.Join(sentences, "; "))
}
