package gateway

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// robotAged returns a Robot that was created so long after the clock's time.
func robotAged(namespace, id string, after time.Duration) *robotv1.Robot {
	r := newRobot(namespace, id, nil, robotState{})
	r.UID, r.ResourceVersion = types.UID(namespace+"/"+id), "1"
	r.CreationTimestamp = metav1.Time{Time: clock.Add(after)}
	return r
}

// The manager breaks ties in the same way. Otherwise it would approve one object while the server
// writes heartbeats to another.
func TestView_PrefersOldestRobotOfSameID(t *testing.T) {
	young, a, b := robotAged("0", "r1", time.Second), robotAged("a", "r1", 0), robotAged("b", "r1", 0)
	for _, order := range [][]*robotv1.Robot{{young, a, b}, {young, b, a}, {a, young, b}, {a, b, young}, {b, young, a}, {b, a, young}} {
		v := newObjectIndex()
		var came []string
		for _, r := range order {
			v.putRobot(r)
			came = append(came, r.Namespace)
		}
		if got := v.robot("r1").Namespace; got != "a" {
			t.Errorf("delivered in the order %v: got %q, want \"a\"", came, got)
		}
	}
}
