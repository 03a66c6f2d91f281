package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// restartWork is what a task does and how it must end.
type restartWork struct {
	jobType string
	script  string // of runTrace
	policy  v1alpha1.RestartPolicy
	state   string // of the task at the end
	// minRuns and maxRuns bound the runs of an attempt that has ended. If maxRuns is 0, there is no bound.
	minRuns, maxRuns int64
	disconnect       v1alpha1.Disconnect
}

// eventSettle is the event after which the runs of services end no more.
const eventSettle = "settle"

// crashingService ends soon after each start, and leaves a process, which must end before the next run.
func crashingService() restartWork {
	const script = `allowed ` + eventSettle + ` && exec sleep infinity
setsid sleep infinity & sleep 0.2; [ $((runs % 2)) = 0 ] && crash; leave 3`
	return restartWork{jobType: v1alpha1.JobTypeService, script: script, policy: endlessPolicy, state: "running"}
}

// stayingService runs until it is killed.
func stayingService() restartWork {
	return restartWork{jobType: v1alpha1.JobTypeService, script: "exec sleep infinity", policy: endlessPolicy, state: "running"}
}

// endlessPolicy never runs out of restarts.
var endlessPolicy = v1alpha1.RestartPolicy{Attempts: 1, Mode: "delay"}

// recovering fails in two runs and completes in the third.
func recovering(fail string) restartWork {
	w := failing(fail)
	w.script, w.policy.Attempts, w.state = "await "+fail+"; [ $runs = 1 ] && leave 4; [ $runs = 2 ] && crash; leave 0", 5, "completed"
	return w
}

// failing fails in each run. Its restarts are used up until long after the end of the test: also without
// contact, and while an agent connects.
func failing(fail string) restartWork {
	policy := v1alpha1.RestartPolicy{Attempts: 2, Interval: v1alpha1.NewDuration(time.Hour), Mode: "fail"}
	return restartWork{jobType: v1alpha1.JobTypeBatch, script: "await " + fail + "; leave 5", policy: policy, state: "failed", minRuns: 3, maxRuns: 3}
}

// failingWithContact fails in each run, and never loses contact.
func failingWithContact(fail string) restartWork {
	w := failing(fail)
	w.policy.Interval = nil
	return w
}

// failingWithoutContact fails in each run. Its last restart follows only because there is no contact.
func failingWithoutContact(fail string) restartWork {
	w := failingWithContact(fail)
	w.policy.Attempts, w.maxRuns = 1, 0
	return w
}

// fencedService must not start after a reboot before its robot has contact: each attempt has one run.
func fencedService() restartWork {
	w := stayingService()
	w.minRuns, w.maxRuns, w.disconnect.StopOnRobotAfter = 1, 1, v1alpha1.NewDuration(time.Hour)
	return w
}

// completingAfter completes after an event, in the last of at least so many runs that reboots end.
func completingAfter(event string, reboots int) restartWork {
	policy := v1alpha1.RestartPolicy{Attempts: 100, Mode: "fail"}
	return restartWork{jobType: v1alpha1.JobTypeBatch, script: "await " + event + "; leave 0", policy: policy, state: "completed", minRuns: int64(reboots) + 1}
}

// reportedAtReboot completes in an attempt after the one that a reboot has ended.
func reportedAtReboot() restartWork {
	policy := v1alpha1.RestartPolicy{Attempts: 100, Mode: "fail", OnReboot: v1alpha1.OnRebootReport}
	return restartWork{
		jobType: v1alpha1.JobTypeBatch, script: "[ $K8S4R_ATTEMPT = 1 ] && exec sleep infinity; leave 0", policy: policy, state: "completed", minRuns: 1, maxRuns: 1,
	}
}

// restartJob is a job with one task.
type restartJob struct {
	restartWork
	robot   *restartRobot
	name    string
	task    v1alpha1.Task // as last read
	problem error         // why the task is not as it must be at the end; nil: it is
}

// errUnfinished is the problem of all tasks of a robot for which a wait has failed.
var errUnfinished = errors.New("its robot did not come to the end of the scenario")

// restartLabel is the label of a robot by which its jobs select it.
const restartLabel = "restarts"

// createJob creates a job, and returns it once its first run has started.
func (r *restartRobot) createJob(name string, w restartWork) *restartJob {
	j := &restartJob{restartWork: w, robot: r, name: r.name + "-" + name, problem: errUnfinished}
	r.jobs = append(r.jobs, j)
	object := newJob(j.name, 1, r.trace.wrapScript(w.script))
	object.Spec.Type, object.Spec.RobotSelector = w.jobType, map[string]string{restartLabel: r.name}
	object.Spec.Disconnect = &w.disconnect
	w.disconnect.Replace = new(false) // however long the machine takes
	object.Spec.TaskGroups[0].RestartPolicy = &w.policy
	r.s.createObject(object)
	testkit.Eventually(r.s.t, progressTimeout, j.name+" runs", func() bool { return j.readTask() == nil && j.lastRun() != nil })
	return j
}

func (j *restartJob) readTask() error {
	return j.robot.s.Get(context.Background(), objectKey(j.name+"-main-0-work"), &j.task)
}

func (j *restartJob) listRuns() []*recordedRun {
	return j.robot.trace.readRuns().byTask[string(j.task.UID)]
}

// lastRun returns the run that started last, or nil if there is none.
func (j *restartJob) lastRun() *recordedRun {
	runs := j.listRuns()
	if len(runs) == 0 {
		return nil
	}
	return runs[len(runs)-1]
}

// awaitMoreRuns calls f and waits until each job has n more runs than before.
func awaitMoreRuns(jobs []*restartJob, n int, f func()) {
	want := map[*restartJob]int{}
	for _, j := range jobs {
		want[j] = len(j.listRuns()) + n
	}
	f()
	for _, j := range jobs {
		testkit.EventuallyNoError(j.robot.s.t, progressTimeout, j.name+" is restarted without contact", func() error {
			if got := len(j.listRuns()); got < want[j] {
				return fmt.Errorf("%d runs have started, want %d", got, want[j])
			}
			return nil
		})
	}
}

// awaitAttemptAfter waits until a later attempt runs.
func (j *restartJob) awaitAttemptAfter(attempt int32) {
	testkit.Eventually(j.robot.s.t, progressTimeout, fmt.Sprintf("%s: an attempt after %d is running", j.name, attempt), func() bool {
		return j.lastRun().attempt > attempt
	})
}

// killProcess kills the process of a service that stays.
func (j *restartJob) killProcess() {
	run := j.lastRun()
	j.robot.trace.addLine("end %s %d %d 137 9", j.task.UID, run.attempt, run.number)
	j.robot.kills++
	if err := syscall.Kill(run.pid, syscall.SIGKILL); err != nil {
		j.robot.s.t.Errorf("kill the process of %s: %v", j.name, err)
	}
}

// killShim kills the shim of the last run, and returns its attempt.
func (j *restartJob) killShim() (attempt int32) {
	run := j.lastRun()
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", run.shim))
	if err == nil && !strings.Contains(string(title), string(j.task.UID)) {
		err = errors.New("the process is another one")
	}
	if err == nil {
		err = syscall.Kill(run.shim, syscall.SIGKILL)
	}
	if err != nil {
		j.robot.s.t.Errorf("kill the shim of %s: %v", j.name, err)
	}
	return run.attempt
}

// deleteJobs deletes all jobs and waits until their tasks are gone.
func (r *restartRobot) deleteJobs() {
	for _, j := range r.jobs {
		if err := r.s.Delete(context.Background(), newJob(j.name, 1, "")); err != nil {
			r.s.t.Errorf("%v", err)
		}
	}
	for _, j := range r.jobs {
		testkit.Eventually(r.s.t, progressTimeout, j.name+" is deleted", func() bool {
			return apierrors.IsNotFound(r.s.Get(context.Background(), objectKey(j.task.Name), &v1alpha1.Task{}))
		})
	}
	r.hasNoJobs = true
}
