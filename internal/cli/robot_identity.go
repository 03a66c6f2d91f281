package cli

import (
	"context"
	"fmt"
	"reflect"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// annotationApproved gives a robot work where the manager does not by itself.
const annotationApproved = "robot.k8s4r.io/approved"

func approveCommand(d *deps) *cobra.Command {
	cmd := robotVerb(d, "approve", approve)
	cmd.Short = "Let robots in: new ones, ones with a new key, ones that were revoked"
	cmd.Long = `Lets the key speak for the robot that status.identity.requested shows: that of
the last machine that wanted to be this robot. Compare it first:

  ` + d.program + ` get robot ROBOT -o yaml

Names must be whole: the beginning is not enough here.`
	return cmd
}

// approve takes what was requested last. A robot without an identity is given
// work, where the manager waits for that.
func approve(r *robotv1.Robot) (string, error) {
	was := r.DeepCopy()
	if r.Annotations == nil {
		r.Annotations = map[string]string{}
	}
	r.Annotations[annotationApproved] = "true"
	var wish robotv1.RobotIdentitySpec
	if id := r.Status.Identity; id != nil && id.Requested != nil {
		wish.ApprovedKey, wish.ApprovedMachine = id.Requested.Key, id.Requested.Machine
	}
	if wish != (robotv1.RobotIdentitySpec{}) || r.Spec.Identity != nil {
		r.Spec.Identity = &wish
	}
	if reflect.DeepEqual(was, r) {
		return "approved already", nil
	}
	if wish.ApprovedKey == "" {
		return "approved; it has not joined yet", nil
	}
	return fmt.Sprintf("approved with key %s", wish.ApprovedKey), nil
}

func revokeCommand(d *deps) *cobra.Command {
	var reason string
	cmd := robotVerb(d, "revoke", func(r *robotv1.Robot) (string, error) {
		was := r.DeepCopy()
		if r.Spec.Identity == nil {
			r.Spec.Identity = &robotv1.RobotIdentitySpec{}
		}
		// What was approved is so no more: a later approval says which key.
		*r.Spec.Identity = robotv1.RobotIdentitySpec{Revoked: true, RevokedReason: reason}
		if reflect.DeepEqual(was, r) {
			return "revoked already", nil
		}
		return "revoked", nil
	})
	cmd.Short = "Refuse robots, and end their connections"
	cmd.Long = `Refuses the robots whatever they prove, ends their connections within seconds, and
keeps them from joining again. They are given nothing more; what runs there
is lost, and runs elsewhere as the job says of robots that are out of contact. approve takes it back.
Names must be whole: the beginning is not enough here.`
	cmd.Flags().StringVar(&reason, "reason", "", "why, for people")
	return cmd
}

// robotVerb changes robots one after the other.
func robotVerb(d *deps, verb string, judge func(*robotv1.Robot) (string, error)) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:               verb + " ROBOT...",
		Example:           "  " + d.program + " robot " + verb + " rover-1 rover-2",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&conn, robotKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := bareNames(robotKind, args)
			if err != nil {
				return err
			}
			return d.withCluster(&conn, func(c *cluster) error { return amendRobots(cmd.Context(), d, c, names, judge) })
		},
	}
	conn.addFlags(cmd.Flags())
	return cmd
}

func amendRobots(ctx context.Context, d *deps, c *cluster, names []string, judge func(*robotv1.Robot) (string, error)) error {
	return each(c, names, func(name string) error {
		_, said, err := amend(ctx, c, robotKind, name, judge)
		if err == nil {
			d.report(robotKind, name, said)
		}
		return err
	})
}
