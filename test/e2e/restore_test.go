package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// firstAfterRestore is the lowest number of an attempt after the first restore.
const firstAfterRestore = 1<<20 + 1

// countsStarts returns a task that adds the number of its attempt to a file when it starts, and then runs as
// long as another file exists. Each replica has files of its own.
func countsStarts(name, starts, hold, then string) v1alpha1.TaskDefinition {
	return shell(name, "echo $K8S4R_ATTEMPT.$K8S4R_RUN >> "+starts+"-$K8S4R_TASK_INDEX; "+while(hold+"-$K8S4R_TASK_INDEX")+"; "+then)
}

// onRobot lets a Job run on one robot only.
func onRobot(id string) func(*v1alpha1.Job) {
	return func(j *v1alpha1.Job) { j.Spec.RobotSelector = map[string]string{"robot": id} }
}

func cpuOf(d v1alpha1.TaskDefinition, cpu string) v1alpha1.TaskDefinition {
	d.Resources = &v1alpha1.Resources{CPU: quantity(cpu)}
	return d
}

// TestRestore_OldBackupWhileRobotsKeptRunning restores a backup that is older than most of what the robots
// ran: tasks have ended, started, failed and restarted since. No task of a connected robot starts
// again, and no attempt number is used twice.
func TestRestore_OldBackupWhileRobotsKeptRunning(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node,console")
	for id, cpu := range map[string]string{"r1": "1", "r2": "1", "r3": "1", "r4": "400m"} {
		s.robotWith(id, map[string]string{"cpu": cpu})
	}
	agents := map[string]*program{}
	for _, id := range []string{"r1", "r2", "r3", "r4"} {
		agents[id] = agent(t, s, id, "--heartbeat", "1s")
		s.awaitRobot(id, "Online", time.Minute)
	}
	d := newDrill(s)

	// Six of twelve tasks fit beside each other, and one that will fail. Two jobs wait and are paused.
	d.create("occupant", 1, cpuOf(countsStarts("work", d.starts("occupant"), d.hold("occupant", 1), "true"), "400m"), onRobot("r4"))
	d.awaitRunning("occupant", 1)
	d.create("batch", 12, cpuOf(countsStarts("work", d.starts("batch"), d.hold("batch", 12), "true"), "400m"))
	flaky := cpuOf(countsStarts("work", d.starts("flaky"), d.hold("flaky", 1), "exit 1"), "50m")
	d.create("flaky", 1, flaky, func(j *v1alpha1.Job) {
		j.Spec.TaskGroups[0].RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 5, Delay: span(0)}
	})
	d.awaitRunning("batch", 6)
	d.awaitRunning("flaky", 1)
	d.create("resumed", 1, cpuOf(countsStarts("work", d.starts("resumed"), d.hold("resumed", 1), "true"), "400m"))
	d.create("away", 1, cpuOf(countsStarts("work", d.starts("away"), d.hold("away", 1), "true"), "400m"))
	for _, job := range []string{"resumed", "away"} {
		d.awaitTasks(job, "pending", 1)
		d.want(job, v1alpha1.DesiredPaused)
		d.awaitTasks(job, "paused", 1)
	}

	file := d.backUp()

	// What follows is not in the backup.
	early := d.startedOf("batch", 12)
	pending := d.tasksOf("batch")
	pending = slices.DeleteFunc(pending, func(t v1alpha1.Task) bool { return cmp.Or(t.Status.State, "pending") != "pending" })
	if len(pending) != 6 {
		t.Fatalf("%d tasks are pending, want 6", len(pending))
	}
	d.release("batch", early...)
	d.awaitStarted("batch", 12, 12)
	late := slices.DeleteFunc(d.startedOf("batch", 12), func(i int) bool { return slices.Contains(early, i) })
	d.release("batch", late[:3]...)
	d.release("flaky", 0)
	d.awaitTasks("batch", "completed", 9)
	d.awaitAttempts("flaky", 3)
	d.want("resumed", v1alpha1.DesiredRunning)
	d.awaitRunning("resumed", 1)
	d.release("resumed", 0)
	s.awaitJob("resumed", "completed", time.Minute)
	d.create("filler", 3, cpuOf(countsStarts("work", d.starts("filler"), d.hold("filler", 3), "true"), "400m"))
	d.awaitRunning("filler", 3) // so that only r4 has room
	d.release("occupant", 0)
	s.awaitJob("occupant", "completed", time.Minute)
	d.want("away", v1alpha1.DesiredRunning)
	if at := s.awaitTask("away-main-0-work", "running", time.Minute).CurrentRobot(); at != "r4" {
		t.Fatalf("away runs on %s", at)
	}
	pid := d.dir + "/unknown-pid"
	d.create("unknown", 1, shell("work", "echo $$ > "+pid+"; "+while(d.hold("unknown", 1)+"-0")), onRobot("r1"))
	d.awaitRunning("unknown", 1)

	s.Kill()
	agents["r4"].Kill() // its task goes on, out of contact
	d.restore(file)

	// r4 is waited for, and users see that: the restart of flaky waits, too. The tasks of batch are
	// known again as soon as their own robots have reported.
	d.awaitOutput("have reported what they ran since the restored backup", "why", "flaky-main-0-work")
	d.awaitOutput("AwaitingJournals", "doctor")
	s.awaitEvent("r1", "UnknownTasks", 2*time.Minute)
	testkit.Eventually(t, time.Minute, "the task that the backup does not have is stopped", func() bool { return !processIn(pid) })
	d.release("batch", late[3:]...)
	s.awaitJob("batch", "completed", 3*time.Minute)
	s.awaitTask("resumed-main-0-work", "completed", time.Minute)
	for i := range 12 {
		d.expectStarts("batch", i, "1.1")
	}
	d.expectStarts("resumed", 0, "1.1")

	if out, _ := s.RunProgram("k8s4r", "doctor"); strings.Contains(out, "AwaitingJournals") {
		t.Errorf("tasks are placed, but doctor prints:\n%s", out)
	}

	// The attempts of flaky since the backup are numbered on from those of its robot.
	d.checkNoNumberTwice("flaky", 0)
	s.awaitJob("flaky", "failed", 2*time.Minute)
	d.checkNoNumberTwice("flaky", 0)

	// The robot of away is out of contact: the task runs again, with another number.
	d.want("away", v1alpha1.DesiredRunning)
	d.awaitAttempts("away", 2)
	d.expectStarts("away", 0, "1.1", fmt.Sprint(firstAfterRestore, ".1"))
	d.release("away", 0)
	s.awaitJob("away", "completed", time.Minute)
}

// TestRestore_InPlaceKeepsTheRobotsOfThisMachine restores a system that was stopped, in its own directory. Its
// robot still knows what it ran since the backup.
func TestRestore_InPlaceKeepsTheRobotsOfThisMachine(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "1", "--without", "node,console")
	d := newDrill(s)
	d.create("since", 1, countsStarts("work", d.starts("since"), d.hold("since", 1), "true"), func(j *v1alpha1.Job) {
		j.Spec.RobotSelector = map[string]string{"ready": "yes"}
	})
	d.awaitTasks("since", "pending", 1)
	file := d.backUp()
	if out, err := s.kubectl("patch", "rb", "robot-1", "--type=merge", "-p", `{"spec":{"labels":{"ready":"yes"}}}`); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d.awaitRunning("since", 1)
	d.release("since", 0)
	s.awaitJob("since", "completed", time.Minute)

	if out, err := s.RunProgram("k8s4r", "restore", "--replace", "--data-dir", s.DataDir, file); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("restored while it runs: %v\n%s", err, out)
	}
	s.Stop()
	if out, err := s.RunProgram("k8s4r", "restore", "--data-dir", s.DataDir, file); err == nil || !strings.Contains(out, "--replace") {
		t.Errorf("restored over data: %v\n%s", err, out)
	}
	if out, err := s.RunProgram("k8s4r", "restore", "--replace", "--data-dir", s.DataDir, file); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	aside, _ := filepath.Glob(s.DataDir + ".before-restore-*")
	t.Cleanup(func() {
		for _, dir := range aside {
			os.RemoveAll(dir)
		}
	})
	if len(aside) != 1 {
		t.Errorf("the old directory is not there: %v", aside)
	}
	s.Start()
	s.Client = testkit.NewClient(t, s.RESTConfig())
	s.awaitJob("since", "completed", 2*time.Minute)
	d.expectStarts("since", 0, "1.1")
	s.create(jobOf("next", 1, shell("work", "true")))
	s.awaitJob("next", "completed", time.Minute)
	if got := s.task("next-main-0-work").Status; got.Attempt != firstAfterRestore || got.RestartCount != 0 {
		t.Errorf("attempt %d with %d restarts", got.Attempt, got.RestartCount)
	}
	// A system that was stopped can be backed up, too.
	s.Stop()
	d.backUp()
}

// drill counts what the tasks of the test start.
type drill struct {
	*system
	dir string
}

func newDrill(s *system) *drill { return &drill{s, s.t.TempDir()} }

// starts returns the prefix of the files in which a job counts its starts, and hold that of the files
// that keep its tasks running.
func (d *drill) starts(job string) string { return d.dir + "/" + job + "-starts" }

func (d *drill) holdFile(job string) string { return d.dir + "/" + job + "-hold" }

func (d *drill) hold(job string, count int) string {
	d.t.Helper()
	for i := range count {
		d.system.hold(fmt.Sprintf("%s-%d", d.holdFile(job), i))
	}
	return d.holdFile(job)
}

func (d *drill) release(job string, indexes ...int) {
	for _, i := range indexes {
		os.Remove(fmt.Sprintf("%s-%d", d.holdFile(job), i))
	}
}

func (d *drill) create(name string, count int32, task v1alpha1.TaskDefinition, edit ...func(*v1alpha1.Job)) {
	d.t.Helper()
	job := jobOf(name, count, task)
	job.Spec.RobotSelector = nil
	for _, e := range edit {
		e(job)
	}
	d.system.create(job)
}

func (d *drill) want(job, state string) {
	d.t.Helper()
	testkit.EventuallyNoError(d.t, time.Minute, "job "+job+" is requested to be "+state, func() error {
		j := &v1alpha1.Job{}
		if err := d.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: job}, j); err != nil {
			return err
		}
		j.Spec.DesiredState = state
		return d.Update(context.Background(), j)
	})
}

// startLines returns the attempts of a task that have started, in order.
func (d *drill) startLines(job string, index int) []string {
	return linesOf(fmt.Sprintf("%s-%d", d.starts(job), index))
}

// startedOf returns the indexes of the tasks that have started.
func (d *drill) startedOf(job string, count int) (indexes []int) {
	for i := range count {
		if len(d.startLines(job, i)) > 0 {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func (d *drill) awaitStarted(job string, count, want int) {
	d.t.Helper()
	testkit.Eventually(d.t, time.Minute, fmt.Sprintf("%d tasks of %s have started", want, job), func() bool { return len(d.startedOf(job, count)) == want })
}

func (d *drill) awaitAttempts(job string, n int) {
	d.t.Helper()
	testkit.Eventually(d.t, 3*time.Minute, fmt.Sprintf("%s has started %d times", job, n), func() bool { return len(d.startLines(job, 0)) >= n })
}

func (d *drill) countTasks(job, state string) (n int) {
	for _, task := range d.tasksOf(job) {
		if cmp.Or(task.Status.State, "pending") == state {
			n++
		}
	}
	return n
}

func (d *drill) awaitTasks(job, state string, n int) {
	d.t.Helper()
	testkit.Eventually(d.t, time.Minute, fmt.Sprintf("%d tasks of %s are %s", n, job, state), func() bool { return d.countTasks(job, state) == n })
}

func (d *drill) awaitRunning(job string, n int) {
	d.t.Helper()
	d.awaitTasks(job, "running", n)
}

// backUp backs up the running system.
func (d *drill) backUp() string {
	d.t.Helper()
	file := d.dir + "/backup.tar.gz"
	if out, err := d.RunProgram("k8s4r", "backup", "--data-dir", d.DataDir, file); err != nil {
		d.t.Fatalf("backup: %v\n%s", err, out)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		d.t.Fatalf("backup: %v, %v", info, err)
	}
	return file
}

// restore restores the backup to a new directory and starts the system there, at the same addresses.
func (d *drill) restore(file string) {
	d.t.Helper()
	next := d.DataDir + "-restored"
	d.t.Cleanup(func() {
		d.Stop()
		os.RemoveAll(next)
	})
	if out, err := d.RunProgram("k8s4r", "restore", "--data-dir", next, file); err != nil {
		d.t.Fatalf("restore: %v\n%s", err, out)
	}
	d.DataDir = next
	d.Start()
	d.Client = testkit.NewClient(d.t, d.RESTConfig())
}

// awaitOutput waits until a command prints a text.
func (d *drill) awaitOutput(text string, args ...string) {
	d.t.Helper()
	testkit.Eventually(d.t, time.Minute, "k8s4r "+strings.Join(args, " ")+" prints "+text, func() bool {
		out, _ := d.RunProgram("k8s4r", args...)
		return strings.Contains(out, text)
	})
}

func (d *drill) expectStarts(job string, index int, want ...string) {
	d.t.Helper()
	if got := d.startLines(job, index); !slices.Equal(got, want) {
		d.t.Errorf("%s %d started as %v, want %v", job, index, got, want)
	}
}

func (d *drill) checkNoNumberTwice(job string, index int) {
	d.t.Helper()
	got := d.startLines(job, index)
	if sorted := slices.Sorted(slices.Values(got)); len(slices.Compact(sorted)) != len(got) {
		d.t.Errorf("%s %d: a run started twice: %v", job, index, got)
	}
}

// awaitEvent blocks until there is an event about a robot.
func (s *system) awaitEvent(robot, reason string, within time.Duration) {
	s.t.Helper()
	testkit.Eventually(s.t, within, "event "+reason+" about "+robot, func() bool {
		var all corev1.EventList
		if err := s.List(context.Background(), &all); err != nil {
			return false
		}
		return slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
			return e.Reason == reason && strings.HasPrefix(e.InvolvedObject.Name, robot)
		})
	})
}
