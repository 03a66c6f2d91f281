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

// annotationApproved allows tasks on a robot that the manager would otherwise keep pending.
const annotationApproved = "robot.k8s4r.io/approved"

func approveCommand(d *deps) *cobra.Command {
	var named approval
	cmd := robotActionCommand(d, "approve", func(r *robotv1.Robot) (string, error) { return named.approveRequest(d.program, r) })
	cmd.Short = "Approve robots that are new, revoked or have a new key"
	cmd.Long = `Accepts the key that is given with --key for the robot. Without --key it only approves
a key that was accepted for the robot before, and prints any other key that was last
requested. Compare that key with the one that k8s4r-agent logs on the robot. If a
newer request with another key was received, the approval is rejected.
Requires full names; prefixes are not accepted.`
	cmd.Flags().StringVar(&named.key, "key", "", "fingerprint of the key to approve, see status.identity.requested.key")
	cmd.Flags().StringVar(&named.machine, "machine", "", "fingerprint of the machine to approve, see status.identity.requested.machine")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if named != (approval{}) && len(args) > 1 {
			return &usageError{err: errors.New("--key and --machine require exactly one robot")}
		}
		return run(cmd, args)
	}
	return cmd
}

// approval holds the fingerprints of a key and of a machine id.
type approval struct{ key, machine string }

// approveRequest approves the last request if it matches the approval. Without this check, a
// client that sends a request just before the approval would be approved instead. A robot without
// an identity gets annotationApproved.
func (a approval) approveRequest(program string, r *robotv1.Robot) (string, error) {
	if err := a.checkApproval(program, r); err != nil {
		return "", err
	}
	was := r.DeepCopy()
	if r.Annotations == nil {
		r.Annotations = map[string]string{}
	}
	r.Annotations[annotationApproved] = "true"
	requested := requestedApproval(r)
	want := robotv1.RobotIdentitySpec{ApprovedKey: requested.key, ApprovedMachine: requested.machine}
	if want != (robotv1.RobotIdentitySpec{}) || r.Spec.Identity != nil {
		r.Spec.Identity = &want
	}
	if reflect.DeepEqual(was, r) {
		return "already approved", nil
	}
	if want.ApprovedKey == "" {
		return "approved; the robot has not joined yet", nil
	}
	return fmt.Sprintf("approved with key %s", want.ApprovedKey), nil
}

// checkApproval returns an error if the operator must compare the key first.
func (a approval) checkApproval(program string, r *robotv1.Robot) error {
	requested := requestedApproval(r)
	switch {
	case requested == (approval{}) && a != requested:
		return fmt.Errorf("robot %s: no join request was received yet, so there is no key to approve", r.Name)
	case a == requested, a == (approval{}) && isKnownKey(r, requested):
		return nil
	}
	problem := "the key must be given with --key"
	if a != (approval{}) {
		problem = "--key and --machine do not match the last request"
	}
	seen := r.Status.Identity.Requested
	flags := " --key=" + requested.key
	if requested.machine != "" {
		flags += " --machine=" + requested.machine
	}
	return fmt.Errorf("robot %s: %s: %s (%s) requested to join as this robot at %s; compare the key with the one in the log of k8s4r-agent, and if they are equal, run: %s robot approve %s%s",
		r.Name, problem, cmp.Or(seen.Hostname, "an unknown host"), cmp.Or(seen.Address, "an unknown address"), seen.Time.UTC().Format(time.RFC3339), program, r.Name, flags)
}

// requestedApproval returns the fingerprints of the last request. They are empty if there was no
// request.
func requestedApproval(r *robotv1.Robot) approval {
	if id := r.Status.Identity; id != nil && id.Requested != nil {
		return approval{id.Requested.Key, id.Requested.Machine}
	}
	return approval{}
}

// isKnownKey reports whether the request shows a key and machine that acted as the robot before or
// are already approved.
func isKnownKey(r *robotv1.Robot, requested approval) bool {
	if s := r.Spec.Identity; s != nil && s.ApprovedKey != "" && requested == (approval{s.ApprovedKey, s.ApprovedMachine}) {
		return true
	}
	has := r.Status.Identity.Accepted
	return has != nil && has.Key == requested.key && (has.Machine == "" || has.Machine == requested.machine)
}

func revokeCommand(d *deps) *cobra.Command {
	var reason string
	cmd := robotActionCommand(d, "revoke", func(r *robotv1.Robot) (string, error) {
		was := r.DeepCopy()
		if r.Spec.Identity == nil {
			r.Spec.Identity = &robotv1.RobotIdentitySpec{}
		}
		// The approval is dropped: a later one must name the key.
		*r.Spec.Identity = robotv1.RobotIdentitySpec{Revoked: true, RevokedReason: reason}
		if reflect.DeepEqual(was, r) {
			return "already revoked", nil
		}
		return "revoked", nil
	})
	cmd.Short = "Revoke robots and close their connections"
	cmd.Long = `Revokes the keys of robots: their connections are closed within seconds, they cannot
join again, and they get no tasks. Their running tasks are handled like those of
disconnected robots (spec.disconnect of the Job). Use approve to revert it.
Requires full names; prefixes are not accepted.`
	cmd.Flags().StringVar(&reason, "reason", "", "reason that is stored in spec.identity.revokedReason")
	return cmd
}

// robotActionCommand returns a command that changes robots one after the other.
func robotActionCommand(d *deps, verb string, change func(*robotv1.Robot) (string, error)) *cobra.Command {
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
			return d.withCluster(&conn, func(c *cluster) error { return patchRobots(cmd.Context(), d, c, names, change) })
		},
	}
	conn.addFlags(cmd.Flags())
	return cmd
}

func patchRobots(ctx context.Context, d *deps, c *cluster, names []string, change func(*robotv1.Robot) (string, error)) error {
	return forEachName(c, names, func(name string) error {
		_, message, err := patchNamed(ctx, c, robotKind, name, change)
		if err == nil {
			d.printResult(robotKind, name, message)
		}
		return err
	})
}
