package v1alpha1

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestWhichRobotOfAnIDCounts(t *testing.T) {
	at := func(namespace string, second int) *Robot {
		return &Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, CreationTimestamp: metav1.NewTime(time.Unix(int64(second), 0))}}
	}
	if at("z", 1).CompareAge(at("a", 2)) >= 0 || at("a", 2).CompareAge(at("z", 1)) <= 0 {
		t.Error("the younger counts")
	}
	if at("a", 1).CompareAge(at("b", 1)) >= 0 || at("b", 1).CompareAge(at("a", 1)) <= 0 {
		t.Error("of two of one second the later name counts")
	}
}
