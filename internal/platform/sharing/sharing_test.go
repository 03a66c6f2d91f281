package sharing

import (
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
)

// newPod returns a Pod whose strings are its own, as after decoding.
func newPod(name, image string) *corev1.Pod {
	text := func(s string) string { return string([]byte(s)) }
	grace := int64(5)
	now := metav1.Unix(1, 0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: text(name), Labels: map[string]string{text("app"): text("x"), text("name"): text(name)}, OwnerReferences: []metav1.OwnerReference{{UID: "1"}}},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: text("main"), Image: text(image), Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}}},
			TerminationGracePeriodSeconds: &grace,
		},
		Status: corev1.PodStatus{StartTime: &now},
	}
}

func TestSharer_SharesWhatIsEqual(t *testing.T) {
	var s Sharer
	a, b := newPod("a", "one"), newPod("b", "two")
	for _, p := range []*corev1.Pod{a, b} {
		if _, err := s.Transform(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name     string
		isShared bool
		want     bool
	}{
		{"a string that is equal", unsafe.StringData(a.Spec.Containers[0].Name) == unsafe.StringData(b.Spec.Containers[0].Name), true},
		{"the value of a label", unsafe.StringData(a.Labels["app"]) == unsafe.StringData(b.Labels["app"]), true},
		{"a slice that is equal", &a.OwnerReferences[0] == &b.OwnerReferences[0], true},
		{"a pointer to what is equal", a.Spec.TerminationGracePeriodSeconds == b.Spec.TerminationGracePeriodSeconds, true},
		{"a time that is equal", a.Status.StartTime == b.Status.StartTime, true},
		{"a slice with a difference", &a.Spec.Containers[0] == &b.Spec.Containers[0], false},
	} {
		if c.isShared != c.want {
			t.Errorf("%s is shared: %v, want %v", c.name, c.isShared, c.want)
		}
	}
}

func TestSharer_ChangesNoObject(t *testing.T) {
	full, empty := func() *corev1.Pod { return newPod("a", "one") }, func() *corev1.Pod { return &corev1.Pod{} }
	other := func() *corev1.Pod {
		p := newPod("b", "two")
		p.Labels = map[string]string{"other": "x"}
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{UID: "2"})
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "second"})
		p.Spec.Containers[0].Resources.Limits["memory"] = resource.MustParse("1Gi")
		return p
	}
	makers := []func() *corev1.Pod{full, empty, other}
	for i, first := range makers {
		for j, second := range makers {
			var s Sharer
			a, b := first(), second()
			s.Share(a)
			s.Share(b)
			if !equality.Semantic.DeepEqual(a, first()) || !equality.Semantic.DeepEqual(b, second()) {
				t.Errorf("%d, %d: shared: %v and %v", i, j, a, b)
			}
		}
	}
}

func TestSharer_SharesNoRoomForItems(t *testing.T) {
	newObject := func() *corev1.Pod {
		p := newPod("a", "one")
		p.OwnerReferences = append(make([]metav1.OwnerReference, 0, 4), p.OwnerReferences...)
		return p
	}
	var s Sharer
	all := []*corev1.Pod{newObject(), newObject(), newObject()}
	for i, p := range all {
		s.Share(p)
		if n := cap(p.OwnerReferences); n != 1 {
			t.Errorf("object %d has room for %d owners", i, n)
		}
	}
	if &all[0].OwnerReferences[0] != &all[2].OwnerReferences[0] {
		t.Error("nothing is shared")
	}
}
