package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// identities looks for robots that prove nothing, for those whose proof the network
// may have forged, and for those that somebody else wants to be.
func identities(ctx context.Context, c Cluster) []Finding {
	const check = "identities of robots"
	var list robotv1.RobotList
	if err := c.List(ctx, &list); err != nil {
		return unknown(check, err)
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
		if meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionIdentityDisputed) {
			disputed = append(disputed, r.Name)
		}
	}
	var found []Finding
	if len(unproven) > 0 {
		found = append(found, bad(Warn, check, fmt.Sprintf("%s not prove who they are: whoever reaches the broker can speak for them, and read what they are told", some(unproven, "does", "do")),
			"let them join (token create), then start the server without --allow-legacy-agents and --allow-anonymous-agents")...)
	}
	if len(overheard) > 0 {
		found = append(found, bad(Warn, check, fmt.Sprintf("%s heard through a broker without TLS: whoever is on the way between it and the server can run commands on robots", some(overheard, "is", "are")),
			"give the server an address mqtts://, then start it without --allow-plaintext-broker")...)
	}
	if len(disputed) > 0 {
		found = append(found, bad(Warn, check, fmt.Sprintf("%s wanted by another key or machine", some(disputed, "is", "are")),
			"see the condition IdentityDisputed, and then: robot approve, or give the other machine a robot id of its own")...)
	}
	if len(found) == 0 {
		return good(check, "nobody speaks for a robot that is not his")
	}
	return found
}

// some names the first of several robots, with the verb that fits.
func some(names []string, one, many string) string {
	switch len(names) {
	case 1:
		return fmt.Sprintf("%s %s", names[0], one)
	default:
		return fmt.Sprintf("%s and %d more %s", names[0], len(names)-1, many)
	}
}
