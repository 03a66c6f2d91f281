package explain

import (
	"fmt"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// UnconfirmedStopText describes the attempt that was ended without its robot. It is empty if there is
// none, or if the robot has confirmed it.
func UnconfirmedStopText(t *robotv1.Task) string {
	u := t.Status.UnconfirmedStop
	if u == nil {
		return ""
	}
	return fmt.Sprintf("attempt %d may still be running on robot %s, which has not confirmed the stop since %s",
		u.Attempt, u.Robot, u.Since.UTC().Format(time.RFC3339))
}

// UnconfirmedStopsText describes the tasks of a job that were ended without their robots. It is empty if
// there are none.
func UnconfirmedStopsText(c *robotv1.TaskCounts) string {
	switch c.UnconfirmedStops {
	case 0:
		return ""
	case 1:
		return "one of its tasks may still be running on a robot that has not confirmed the stop"
	}
	return fmt.Sprintf("%d of its tasks may still be running on robots that have not confirmed the stop", c.UnconfirmedStops)
}
