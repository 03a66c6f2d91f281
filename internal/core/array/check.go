package array

import (
	"errors"
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Check returns what of a group with an array, of a job of this type, is not possible. Each line of the
// error begins with path, which ends in a dot, and the field of the group, and ends with what to do. It
// returns nil for a group without an array.
func Check(path, jobType string, g *v1alpha1.TaskGroupTemplate) error {
	if g.Array == nil {
		return nil
	}
	c := checker{path: path}
	c.checkGroup(jobType, g)
	c.checkArray(g.Array)
	return errors.Join(c.errs...)
}

type checker struct {
	path string
	errs []error
}

func (c *checker) refuse(isWrong bool, format string, args ...any) {
	if isWrong {
		c.errs = append(c.errs, fmt.Errorf(c.path+format, args...))
	}
}

// checkGroup checks what the group has beside its array.
func (c *checker) checkGroup(jobType string, g *v1alpha1.TaskGroupTemplate) {
	c.refuse(v1alpha1.IsKeptRunning(jobType), "array: each index must end, and a job of type %s restarts its tasks; use type: batch, or count instead of array", jobType)
	c.refuse(jobType == v1alpha1.JobTypeSysbatch, "array: a job of type sysbatch runs its tasks once on every robot; use type: batch, or omit array")
	c.refuse(g.Count != nil && *g.Count != 1, "count: the array defines the number of tasks; omit count")
	c.refuse(len(g.Tasks) != 1, "tasks: an array runs one task, and there are %d; move the others to groups of their own, or use count instead of array", len(g.Tasks))
	c.refuse(len(g.InitTasks) > 0, "initTasks: an array has none; let its task do their work, or use count instead of array")
	c.refuse(g.Gang, "gang: the indexes of an array do not start together; omit gang, or use count instead of array")
	c.refuse(g.RestartPolicy != nil && g.RestartPolicy.OnReboot == v1alpha1.OnRebootRestart,
		"restartPolicy.onReboot: the robot starts no index again after its restart, the manager does; omit onReboot, or use count instead of array")
	c.refuse(g.EphemeralDisk != nil, "ephemeralDisk: the indexes of an array share no directory; omit it, or use count instead of array")
	for i := range g.Tasks {
		t := &g.Tasks[i]
		c.refuse(t.Daemon, "tasks[%s].daemon: the indexes of an array must end; omit daemon, or use count instead of array", t.Name)
		c.refuse(len(t.SecretEnv) > 0, "tasks[%s].secretEnv: an array has none; read the value from a file of the robot, or use count instead of array", t.Name)
	}
}

// checkArray checks the array itself.
func (c *checker) checkArray(a *v1alpha1.Array) {
	all, err := Indexes(a)
	if err != nil {
		c.refuse(true, "array.indexes: %w; write indexes in ascending order, such as 0-99,200-299", err)
		return
	}
	n, bytes := all.Len(), itemBytes(a.Items)
	c.refuse(a.Size < 0 || a.RangeSize < 0, "array: size and rangeSize must not be negative")
	c.refuse(a.Size > 0 && a.Indexes != "", "array.size: indexes defines the indexes, too; omit one of them")
	c.refuse(n == 0, "array: it has no index; set size, indexes or items")
	c.refuse(n > v1alpha1.MaxArraySize, "array: it has %d indexes, and at most %d are allowed; divide it into several groups or jobs", n, v1alpha1.MaxArraySize)
	c.refuse(a.RangeSize > v1alpha1.MaxRangeSize, "array.rangeSize: must be at most %d", v1alpha1.MaxRangeSize)
	c.refuse(len(a.Items) > 0 && len(a.Items) != n, "array.items: there are %d items for %d indexes; give each index one, or omit size and indexes", len(a.Items), n)
	c.refuse(bytes > v1alpha1.MaxItemBytes, "array.items: they have %d bytes, and at most %d are allowed; pass large items as files or artifacts, by their index", bytes, v1alpha1.MaxItemBytes)
}
