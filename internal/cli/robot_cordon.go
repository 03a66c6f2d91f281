package cli

import (
	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// cordon is what one of the three verbs makes of robots.
type cordon struct {
	done string // as a word
	set  func(*robotv1.RobotSpec)
}

func cordonCommand(d *deps) *cobra.Command {
	cmd := robotVerb(d, "cordon", cordon{"cordoned", func(s *robotv1.RobotSpec) { s.Unschedulable = true }}.judge)
	cmd.Short = "Keep new tasks away from robots"
	cmd.Long = `Marks the robots so that they are given no new task. What runs on them goes on.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func drainCommand(d *deps) *cobra.Command {
	cmd := robotVerb(d, "drain", cordon{"drain requested", func(s *robotv1.RobotSpec) { s.Drain = true }}.judge)
	cmd.Short = "Keep new tasks away from robots, and let theirs run elsewhere"
	cmd.Long = `Marks the robots so that they are given no new task, and stops what runs on them:
it goes back and runs again on other robots. uncordon takes it back.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func uncordonCommand(d *deps) *cobra.Command {
	cmd := robotVerb(d, "uncordon", cordon{"uncordoned", func(s *robotv1.RobotSpec) { s.Unschedulable, s.Drain = false, false }}.judge)
	cmd.Short = "Let robots have new tasks again"
	cmd.Long = `Takes back what cordon and drain did: the robots may be given new tasks again.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func (w cordon) judge(r *robotv1.Robot) (string, error) {
	was := r.Spec
	w.set(&r.Spec)
	if was.Unschedulable == r.Spec.Unschedulable && was.Drain == r.Spec.Drain {
		return w.done + " already", nil
	}
	return w.done, nil
}
