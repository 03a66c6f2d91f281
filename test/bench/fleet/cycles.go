package main

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/scheduler"
)

// The work of the scheduler while its cycles are measured.
const (
	cycleJobs      = 100 // with distinct constraints and resources
	waitingPerJob  = 100
	endsPerCycle   = 100 // tasks that end before each cycle, and make room for as many others
	changesPercent = 1   // robots that disconnect or come back before each cycle
)

// cycler is a scheduler that knows many Robots and Tasks, as their informers show them.
type cycler struct {
	*scheduler.Scheduler
	robots  []*v1alpha1.Robot
	tasks   map[string]*v1alpha1.Task // that wait or run, by name
	running []string                  // tasks, oldest first
	created int                       // tasks
	version int
	// notified are tasks for which a cycle has decided something new.
	notified []string
}

// cycleTimes are the times of cycles and of the watch events before each of them.
type cycleTimes struct{ cycles, events startTimes }

// measureCycles runs cycles of the scheduler over so many robots, each of which runs a task.
func measureCycles(t testing.TB, robots, cycles int) cycleTimes {
	c := newCycler(robots)
	c.RunCycle(time.Now()) // computes what the planner remembers
	var out cycleTimes
	for n := range cycles {
		began := time.Now()
		c.showEvents(n)
		shown := time.Now()
		c.RunCycle(shown)
		out.events, out.cycles = append(out.events, shown.Sub(began)), append(out.cycles, time.Since(shown))
		if bound := c.startAssigned(); bound == 0 {
			t.Fatalf("cycle %d of %d robots has placed no task", n, robots)
		}
	}
	return out
}

func newCycler(robots int) *cycler {
	c := &cycler{Scheduler: scheduler.New(time.Now, logr.Discard()), tasks: map[string]*v1alpha1.Task{}}
	c.NotifyTasks(func(_, name string) { c.notified = append(c.notified, name) })
	for i := range cycleJobs {
		job, group := newCycleJob(i)
		c.JobHandler().OnAdd(job, true)
		c.GroupHandler().OnAdd(group, true)
	}
	for i := range robots {
		r := newCycleRobot(i)
		c.robots = append(c.robots, r)
		c.RobotHandler().OnAdd(r, true)
		c.startTask(c.newTask(), r.Name)
	}
	for range cycleJobs * waitingPerJob {
		c.TaskHandler().OnAdd(c.newTask(), true)
	}
	return c
}

func groupName(i int) string { return fmt.Sprintf("job-%02d-main", i%cycleJobs) }

// newCycleJob returns a running Job and its group, with constraints of their own.
func newCycleJob(i int) (*v1alpha1.Job, *v1alpha1.TaskGroup) {
	group := &v1alpha1.TaskGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: groupName(i), UID: types.UID(groupName(i))},
		Spec:       v1alpha1.TaskGroupSpec{JobName: fmt.Sprintf("job-%02d", i), GroupName: "main"},
	}
	group.Spec.Constraints = constraintsOf(i)
	return &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: group.Spec.JobName},
		Spec:       v1alpha1.JobSpec{RobotSelector: map[string]string{"fleet": "bench"}},
		Status:     v1alpha1.JobStatus{State: string(lifecycle.JobRunning)},
	}, group
}

func constraintsOf(i int) []v1alpha1.Constraint {
	cores, hall := "${robot.attr.cpu.cores}", "${robot.labels.datacenter}"
	most, pattern := strconv.Itoa(1+i%3), fmt.Sprintf("^hall-[0-9]$|^hall-%d$", i)
	return []v1alpha1.Constraint{{LTarget: &cores, Operand: ">=", RTarget: &most}, {LTarget: &hall, Operand: "regexp", RTarget: &pattern}}
}

// newCycleRobot returns a robot that is online and has room for one task.
func newCycleRobot(i int) *v1alpha1.Robot {
	r := newRobotObject(robotID(i))
	r.UID = types.UID(r.Name)
	r.Spec.Capacity = map[string]resource.Quantity{v1alpha1.CapacityTasks: resource.MustParse("1")}
	r.Status.Phase = string(lifecycle.RobotOnline)
	r.Status.DeviceInfo = &v1alpha1.DeviceInfo{CPU: &v1alpha1.CPU{LogicalCores: 4}, Memory: &v1alpha1.Memory{Total: 8 << 30}}
	return r
}

// newTask returns a Task that waits, of the next Job.
func (c *cycler) newTask() *v1alpha1.Task {
	i, isController := c.created, true
	c.created++
	group := groupName(i)
	cpu, memory := resource.MustParse("1"), resource.MustParse(fmt.Sprintf("%dMi", 512+i%cycleJobs))
	t := &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d-work", group, i), UID: types.UID(strconv.Itoa(i)), ResourceVersion: c.nextVersion(),
			Labels:          map[string]string{v1alpha1.LabelTaskIndex: strconv.Itoa(i)},
			OwnerReferences: []metav1.OwnerReference{{Kind: "TaskGroup", Name: group, UID: types.UID(group), Controller: &isController}},
		},
		Spec: v1alpha1.TaskSpec{
			JobName: fmt.Sprintf("job-%02d", i%cycleJobs), TaskGroupName: group,
			TaskDefinition: v1alpha1.TaskDefinition{
				Name: "work", Driver: v1alpha1.DriverExec, Resources: &v1alpha1.Resources{CPU: &cpu, Memory: &memory},
				Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/true"}},
			},
		},
	}
	t.Spec.Constraints = constraintsOf(i % cycleJobs)
	c.tasks[t.Name] = t
	return t
}

func (c *cycler) nextVersion() string {
	c.version++
	return strconv.Itoa(c.version)
}

// startTask shows that a Task runs on a robot.
func (c *cycler) startTask(t *v1alpha1.Task, robot string) {
	next := t.DeepCopy()
	next.ResourceVersion, next.Spec.TargetRobot = c.nextVersion(), robot
	next.Status = v1alpha1.TaskStatus{
		State: string(lifecycle.TaskRunning), Attempt: 1, Attempts: []v1alpha1.TaskAttempt{{Attempt: 1, Robot: robot, State: string(lifecycle.TaskRunning)}},
	}
	c.tasks[t.Name] = next
	c.running = append(c.running, t.Name)
	c.TaskHandler().OnUpdate(t, next)
}

// showEvents ends the oldest tasks, adds as many that wait, and lets robots disconnect or come back.
func (c *cycler) showEvents(cycle int) {
	for _, name := range c.running[:endsPerCycle] {
		next := c.tasks[name].DeepCopy()
		now := metav1.NowMicro()
		next.ResourceVersion, next.Status.State = c.nextVersion(), string(lifecycle.TaskCompleted)
		next.Status.Attempts[0].State, next.Status.Attempts[0].FinishedAt = string(lifecycle.TaskCompleted), &now
		c.TaskHandler().OnUpdate(c.tasks[name], next)
		delete(c.tasks, name)
		c.TaskHandler().OnAdd(c.newTask(), false)
	}
	c.running = slices.Delete(c.running, 0, endsPerCycle)
	changes := len(c.robots) * changesPercent / 100
	for i := range changes {
		// Every other cycle brings back those that the one before has disconnected.
		at := (len(c.robots)/2 + cycle/2*changes + i) % len(c.robots) // far from those that get tasks
		next := c.robots[at].DeepCopy()
		next.Status.Phase = string(lifecycle.RobotOffline)
		if cycle%2 == 1 {
			next.Status.Phase = string(lifecycle.RobotOnline)
		}
		c.RobotHandler().OnUpdate(c.robots[at], next)
		c.robots[at] = next
	}
}

// startAssigned starts the tasks for which the cycle has found a robot, and returns their number.
func (c *cycler) startAssigned() (started int) {
	for _, name := range c.notified {
		t := c.tasks[name]
		if t == nil || t.Spec.TargetRobot != "" {
			continue
		}
		if robot, _ := c.Assignment(types.NamespacedName{Namespace: namespace, Name: name}); robot != "" {
			c.startTask(t, robot)
			started++
		}
	}
	c.notified = nil
	return started
}
