package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// waitForRollout shows the Rollout until it has ended.
func (d *deps) waitForRollout(ctx context.Context, c *cluster, r *robotv1.Rollout, timeout time.Duration) error {
	w := &rolloutWatch{liveText: newLiveText(d), cluster: c, rollout: r}
	ctx, stop := d.newWaitContext(ctx, timeout)
	defer stop()
	err := d.followUntilEnd(ctx, w, singleObject(c, rolloutKind, r))
	switch {
	case errors.Is(err, errTimeout):
		return w.stopWatching(fmt.Sprintf("timed out after %s", timeout), ExitTimeout)
	case errors.Is(err, context.Canceled):
		return w.stopWatching("detached", ExitInterrupted)
	case err != nil:
		return err
	}
	return w.printOutcome()
}

// rolloutWatch follows one Rollout to its end.
type rolloutWatch struct {
	liveText
	cluster *cluster
	rollout *robotv1.Rollout
}

// applyUpdate updates the view.
func (w *rolloutWatch) applyUpdate(u update) error {
	if !w.recordConnection(u) {
		return nil
	}
	if len(u.objects) == 0 {
		return fmt.Errorf("rollout %s was deleted", w.rollout.Name)
	}
	w.rollout = u.objects[0].(*robotv1.Rollout)
	return nil
}

func (w *rolloutWatch) showView() (ended bool) {
	v := rolloutView{w.rollout, w.now()}
	if w.terminal.live {
		w.drawLines(v.lines(), fitLines)
	} else {
		w.printChanges(v)
	}
	return rollout.HasEnded(w.rollout)
}

// printChanges prints a line for each change of the Rollout and of its waves.
func (w *rolloutWatch) printChanges(v rolloutView) {
	w.printChange("", v.headLine())
	for i := range v.Status.Waves[:min(len(v.Status.Waves), len(v.Spec.Waves))] {
		s := &v.Status.Waves[i]
		text := fmt.Sprintf("wave %s: %d/%d updated, %d updating, %d failed", s.Name, s.Updated, s.Total, s.Updating, s.Failed)
		if s.OutOfContact > 0 {
			text += fmt.Sprintf(", %d out of contact", s.OutOfContact)
		}
		if s.OutsideWindow > 0 {
			text += fmt.Sprintf(", %d outside their windows", s.OutsideWindow)
		}
		if s.Held > 0 {
			text += fmt.Sprintf(", %d held", s.Held)
		}
		if s.FinishedAt != nil {
			text += ", finished"
		}
		w.printChange(s.Name, text)
	}
	w.printConnection()
}

func (w *rolloutWatch) stopWatching(reason string, status int) error {
	name, flag := w.rollout.Name, w.cluster.namespaceFlag
	fmt.Fprintf(w.Err, "%s; rollout %s continues\n  watch it: %s rollout status %s --watch%s\n  pause it: %s rollout pause %s%s\n",
		reason, name, w.program, name, flag, w.program, name, flag)
	return &outcomeError{status: status}
}

// printOutcome prints how the Rollout has ended. The error carries the exit status.
func (w *rolloutWatch) printOutcome() error {
	v := rolloutView{w.rollout, w.now()}
	c := &v.Status.Counts
	fmt.Fprintf(w.Out, "rollout %s is %s: %d of %d units updated, %d failed\n", v.Name, v.Status.Phase, c.Updated, c.Total, c.Failed)
	v.writeFailures(w.Out, w.program, w.cluster.namespaceFlag)
	v.writeNext(w.Out, w.program, w.cluster.namespaceFlag)
	if v.Status.Phase == robotv1.RolloutComplete {
		return nil
	}
	return &outcomeError{status: ExitFailed}
}
