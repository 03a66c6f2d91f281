package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// identities looks for robots that prove nothing, and for those that somebody else
// wants to be.
func identities(ctx context.Context, c Cluster) []Finding {
	const check = "identities of robots"
	var list robotv1.RobotList
	if err := c.List(ctx, &list); err != nil {
		return unknown(check, err)
	}
	var unproven, disputed []string
	for i := range list.Items {
		r := &list.Items[i]
		if meta.IsStatusConditionFalse(r.Status.Conditions, robotv1.ConditionAuthenticated) {
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
