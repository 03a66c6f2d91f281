package task

import (
	"cmp"
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// changeRestart is the changeMode of a template whose changed result restarts the task. It is the default.
const changeRestart = "restart"

// pauseRuns asks the robot of a task to start no further run, if there is an obstacle. The current run ends
// by itself. Tasks of arrays have only one run.
func (p *planner) pauseRuns() {
	if p.isGroupChanging() && !p.jobState().PausesTasks() {
		return // whether the definition is an old one is not known
	}
	want, why := int32(0), p.runObstacle()
	if why != "" && (p.jobState().PausesTasks() || p.hasRunEnded()) && p.Task.Spec.Array == nil && mayRunAgain(&p.Task.Spec) {
		want = p.status.Attempt
	}
	if p.status.PauseAttempt == want {
		return
	}
	if p.status.PauseAttempt = want; want != 0 {
		p.addReason("start no further run: " + why)
	} else {
		p.addReason("start further runs again")
	}
	p.writeStatus()
}

// runObstacle returns why the robot of a task may start no further run. Empty if it may. Without it a task
// that ends again and again would keep an old definition, or a robot that is no longer shared.
func (p *planner) runObstacle() string {
	if p.jobState().PausesTasks() {
		return p.describePause()
	}
	return cmp.Or(p.outdatedReason(), p.sharingObstacle())
}

// hasRunEnded reports whether a run of the attempt has ended with another one to follow. A task that runs
// well is left to the rollout, and its robot may restart it when it has no contact.
func (p *planner) hasRunEnded() bool {
	return taskstate.NextRunAt(p.Task) != nil || p.status.PauseAttempt == p.status.Attempt
}

// mayRunAgain reports whether an attempt of the task may have more than one run: its restartPolicy
// allows it, or the result of a template may change. Other tasks need no write.
func mayRunAgain(t *v1alpha1.TaskSpec) bool {
	return restartPolicy(t).Attempts > 0 || slices.ContainsFunc(t.Templates, func(o v1alpha1.Template) bool {
		return o.ChangeMode == "" || o.ChangeMode == changeRestart
	})
}
