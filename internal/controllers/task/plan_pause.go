package task

import (
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// changeRestart is the changeMode of a template whose changed result restarts the task. It is the default.
const changeRestart = "restart"

// pauseRuns asks the robot of a task to start no further run, while the job is paused. The current run
// ends by itself. Tasks of arrays have only one run.
func (p *planner) pauseRuns() {
	want := int32(0)
	if p.jobState().PausesTasks() && p.Task.Spec.Array == nil && mayRunAgain(&p.Task.Spec) {
		want = p.status.Attempt
	}
	if p.status.PauseAttempt == want {
		return
	}
	if p.status.PauseAttempt = want; want != 0 {
		p.addReason("start no further run: " + p.describePause())
	} else {
		p.addReason("start further runs again")
	}
	p.writeStatus()
}

// mayRunAgain reports whether an attempt of the task may have more than one run: its restartPolicy
// allows it, or the result of a template may change. Each other running task of a paused job is spared
// the write.
func mayRunAgain(t *v1alpha1.TaskSpec) bool {
	return restartPolicy(t).Attempts > 0 || slices.ContainsFunc(t.Templates, func(o v1alpha1.Template) bool {
		return o.ChangeMode == "" || o.ChangeMode == changeRestart
	})
}

// hasEndedForPause reports whether the attempt may have ended because it was to start no further run.
// Its end does not count as a failure on its robot then, also if the job was resumed meanwhile.
func (p *planner) hasEndedForPause() bool {
	a := p.currentAttempt()
	return a != nil && a.RunCount > 0 && p.status.PauseAttempt == a.Attempt
}
