package cli

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// advanceHeartbeats sets status.lastHeartbeatTime of robots to the time in their HeartbeatSlices, if
// that is later: a status is up to 20 minutes behind. If the slices of a cluster cannot be read, as in
// one of an earlier version, the times stay.
func advanceHeartbeats(ctx context.Context, c client.Reader, robots []*robotv1.Robot) {
	slices := map[client.ObjectKey]*robotv1.HeartbeatSlice{}
	for _, namespace := range namespacesOfSlices(robots) {
		var list robotv1.HeartbeatSliceList
		if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return
		}
		for i := range list.Items {
			slices[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
		}
	}
	for _, r := range robots {
		r.Status.LastHeartbeatTime = r.LastHeartbeat(slices[client.ObjectKey{Namespace: r.Namespace, Name: r.Status.HeartbeatSlice}])
	}
}

// namespacesOfSlices returns the namespaces whose slices are to be listed. Empty stands for all.
func namespacesOfSlices(robots []*robotv1.Robot) (namespaces []string) {
	for _, r := range robots {
		switch {
		case r.Status.HeartbeatSlice == "":
		case len(namespaces) == 0:
			namespaces = []string{r.Namespace}
		case namespaces[0] != r.Namespace:
			return []string{""}
		}
	}
	return namespaces
}

// robotsIn returns the robots of these sets.
func robotsIn(sets []objectSet) (robots []*robotv1.Robot) {
	for _, set := range sets {
		for _, o := range set.objects {
			if r, ok := o.(*robotv1.Robot); ok {
				robots = append(robots, r)
			}
		}
	}
	return robots
}
