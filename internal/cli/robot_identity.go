package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// annotationApproved allows tasks on a robot that the manager would otherwise keep without work.
const annotationApproved = "robot.k8s4r.io/approved"

func approveCommand(d *deps) *cobra.Command {
	var named approval
	cmd := robotVerb(d, "approve", func(r *robotv1.Robot) (string, error) { return named.approveRequest(d.program, r) })
	cmd.Short = "Let robots in: new ones, ones with a new key, ones that were revoked"
	cmd.Long = `Lets the key speak for the robot that --key names. Without --key it says which key
the last machine has shown that wanted to be this robot, and approves only one
that has spoken for the robot before. Compare it with the robot first: there,
k8s4r-agent writes it to its log. When another has come since, it is refused.
Names must be whole: the beginning is not enough here.`
	cmd.Flags().StringVar(&named.key, "key", "", "fingerprint of the key to approve, as in status.identity.requested.key")
	cmd.Flags().StringVar(&named.machine, "machine", "", "fingerprint of the machine that may hold it, as in status.identity.requested.machine")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if named != (approval{}) && len(args) > 1 {
			return &usageError{err: errors.New("--key and --machine are those of one robot")}
		}
		return run(cmd, args)
	}
	return cmd
}

// approval is what the operator has compared: the fingerprints of a key and of a machine id.
type approval struct{ key, machine string }

// approveRequest approves the last request if it matches what the operator has seen. Without this
// check, a client that sends a request just before the approval would be approved instead. A
// robot without an identity gets annotationApproved.
func (a approval) approveRequest(program string, r *robotv1.Robot) (string, error) {
	if err := a.checkKey(program, r); err != nil {
		return "", err
	}
	was := r.DeepCopy()
	if r.Annotations == nil {
		r.Annotations = map[string]string{}
	}
	r.Annotations[annotationApproved] = "true"
	asks := requestOf(r)
	wish := robotv1.RobotIdentitySpec{ApprovedKey: asks.key, ApprovedMachine: asks.machine}
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

// checkKey returns an error if the operator must compare the key first.
func (a approval) checkKey(program string, r *robotv1.Robot) error {
	asks := requestOf(r)
	switch {
	case asks == (approval{}) && a != asks:
		return fmt.Errorf("robot %s: nobody has asked to be this robot yet, so there is no key to approve", r.Name)
	case a == asks, a == (approval{}) && isKnown(r, asks):
		return nil
	}
	why := "its key must be named"
	if a != (approval{}) {
		why = "that is not what was shown last"
	}
	seen := r.Status.Identity.Requested
	named := " --key=" + asks.key
	if asks.machine != "" {
		named += " --machine=" + asks.machine
	}
	return fmt.Errorf("robot %s: %s: since %s %s at %s wants to be it; compare the key with the robot's own, and if they are the same: %s robot approve %s%s",
		r.Name, why, seen.Time.UTC().Format(time.RFC3339), cmp.Or(seen.Hostname, "somebody"), cmp.Or(seen.Address, "an unknown address"), program, r.Name, named)
}

// requestOf returns what the last request showed. It is zero if there was no request.
func requestOf(r *robotv1.Robot) approval {
	if id := r.Status.Identity; id != nil && id.Requested != nil {
		return approval{id.Requested.Key, id.Requested.Machine}
	}
	return approval{}
}

// isKnown reports whether the request shows a key and machine that acted as the robot before or
// are already approved.
func isKnown(r *robotv1.Robot, asks approval) bool {
	if s := r.Spec.Identity; s != nil && s.ApprovedKey != "" && asks == (approval{s.ApprovedKey, s.ApprovedMachine}) {
		return true
	}
	has := r.Status.Identity.Accepted
	return has != nil && has.Key == asks.key && (has.Machine == "" || has.Machine == asks.machine)
}

func revokeCommand(d *deps) *cobra.Command {
	var reason string
	cmd := robotVerb(d, "revoke", func(r *robotv1.Robot) (string, error) {
		was := r.DeepCopy()
		if r.Spec.Identity == nil {
			r.Spec.Identity = &robotv1.RobotIdentitySpec{}
		}
		// The approval is dropped: a later one must name the key.
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

// robotVerb returns a command that changes robots one after the other.
func robotVerb(d *deps, verb string, judge func(*robotv1.Robot) (string, error)) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:               verb + " ROBOT...",
		Example:           "  " + d.program + " robot " + verb + " rover-1 rover-2",
		Args:              checkArgs(cobra.MinimumNArgs(1)),
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
	return forEachName(c, names, func(name string) error {
		_, said, err := patchNamed(ctx, c, robotKind, name, judge)
		if err == nil {
			d.printResult(robotKind, name, said)
		}
		return err
	})
}
