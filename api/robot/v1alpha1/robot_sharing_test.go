package v1alpha1

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWhomARobotServes(t *testing.T) {
	r := &Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Labels: map[string]string{
		"share.robot.k8s4r.io/c": "true", "share.robot.k8s4r.io/b": "true", "share.robot.k8s4r.io/no": "false",
		"share.robot.k8s4r.io/yes": "yes", "share.robot.k8s4r.io/fleet": "true", "share.robot.k8s4r.io": "true", "e": "true",
	}}}
	r.Spec.Labels = map[string]string{"share.robot.k8s4r.io/d": "true"}
	if got := r.UserNamespaces(); !slices.Equal(got, []string{"fleet", "b", "c"}) {
		t.Errorf("users %v", got)
	}
	for _, namespace := range []string{"fleet", "b", "c", "d", "e", "no", "yes", ""} {
		if r.ServesNamespace(namespace) != slices.Contains(r.UserNamespaces(), namespace) {
			t.Errorf("serves %q: %v, and its users are %v", namespace, r.ServesNamespace(namespace), r.UserNamespaces())
		}
	}
}

func TestRobot_CompareAge(t *testing.T) {
	robot := func(namespace, uid string, second int) *Robot {
		return &Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(time.Unix(int64(second), 0))}}
	}
	for _, c := range []struct {
		name          string
		first, second *Robot
	}{
		{"the older one, whatever its UID", robot("z", "2", 1), robot("a", "1", 2)},
		{"of one second the lower UID, whatever the namespace", robot("z", "1", 1), robot("a", "2", 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.first.CompareAge(c.second) >= 0 || c.second.CompareAge(c.first) <= 0 {
				t.Errorf("compare %d and %d", c.first.CompareAge(c.second), c.second.CompareAge(c.first))
			}
		})
	}
}
