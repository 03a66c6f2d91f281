package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// checkIdentities reports unauthenticated robots, robots whose authentication passes a broker
// without TLS, and robots with an identity conflict.
func checkIdentities(ctx context.Context, c Cluster) []Finding {
	const check = "robot identities"
	var list robotv1.RobotList
	if err := c.List(ctx, &list); err != nil {
		return newUnknown(check, err)
	}
	var unauthenticated, plaintext, conflicting []string
	for i := range list.Items {
		r := &list.Items[i]
		switch c := meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionAuthenticated); {
		case c == nil || c.Status != metav1.ConditionFalse:
		case c.Reason == robotv1.ReasonPlaintextBroker:
			plaintext = append(plaintext, r.Name)
		default:
			unauthenticated = append(unauthenticated, r.Name)
		}
		if meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionIdentityConflict) {
			conflicting = append(conflicting, r.Name)
		}
	}
	var found []Finding
	if len(unauthenticated) > 0 {
		found = append(found, newProblem(Warn, check, fmt.Sprintf("%s not authenticated: clients that reach the broker can act as these robots and read their messages", summarizeNames(unauthenticated)),
			"let them join (token create), then start the server without --allow-legacy-agents and --allow-anonymous-agents")...)
	}
	if len(plaintext) > 0 {
		found = append(found, newProblem(Warn, check, fmt.Sprintf("%s connected through a broker without TLS: an attacker on the network between broker and server can run commands on robots", summarizeNames(plaintext)),
			"give the server an mqtts:// address in --mqtt-url, then start it without --allow-plaintext-broker")...)
	}
	if len(conflicting) > 0 {
		found = append(found, newProblem(Warn, check, fmt.Sprintf("%s claimed by another key or machine", summarizeNames(conflicting)),
			"see the condition IdentityConflict of the Robot; then run robot approve, or give the other machine its own robot id")...)
	}
	if len(found) == 0 {
		return newOK(check, "no conflicts and no unauthenticated robots")
	}
	return found
}

// summarizeNames returns the name of the first robot and the number of the others, with a verb:
// "r1 is" or "r1 and 2 more are".
func summarizeNames(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return fmt.Sprintf("%s and %d more are", names[0], len(names)-1)
}
