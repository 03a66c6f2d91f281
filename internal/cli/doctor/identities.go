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
	const check = "identities of robots"
	var list robotv1.RobotList
	if err := c.List(ctx, &list); err != nil {
		return newUnknown(check, err)
	}
	var unproven, overheard, disputed []string
	for i := range list.Items {
		r := &list.Items[i]
		switch c := meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionAuthenticated); {
		case c == nil || c.Status != metav1.ConditionFalse:
		case c.Reason == robotv1.ReasonPlaintextBroker:
			overheard = append(overheard, r.Name)
		default:
			unproven = append(unproven, r.Name)
		}
		if meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionIdentityConflict) {
			disputed = append(disputed, r.Name)
		}
	}
	var found []Finding
	if len(unproven) > 0 {
		found = append(found, newProblem(Warn, check, fmt.Sprintf("%s not prove who they are: whoever reaches the broker can speak for them, and read what they are told", nameSome(unproven, "does", "do")),
			"let them join (token create), then start the server without --allow-legacy-agents and --allow-anonymous-agents")...)
	}
	if len(overheard) > 0 {
		found = append(found, newProblem(Warn, check, fmt.Sprintf("%s heard through a broker without TLS: whoever is on the way between it and the server can run commands on robots", nameSome(overheard, "is", "are")),
			"give the server an address mqtts://, then start it without --allow-plaintext-broker")...)
	}
	if len(disputed) > 0 {
		found = append(found, newProblem(Warn, check, fmt.Sprintf("%s wanted by another key or machine", nameSome(disputed, "is", "are")),
			"see the condition IdentityConflict, and then: robot approve, or give the other machine a robot id of its own")...)
	}
	if len(found) == 0 {
		return newOK(check, "nobody speaks for a robot that is not his")
	}
	return found
}

// nameSome returns the name of the first robot and the number of the others, with the matching
// verb.
func nameSome(names []string, one, many string) string {
	switch len(names) {
	case 1:
		return fmt.Sprintf("%s %s", names[0], one)
	default:
		return fmt.Sprintf("%s and %d more %s", names[0], len(names)-1, many)
	}
}
