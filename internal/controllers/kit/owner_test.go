package kit

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func ownedPod(name string, owner types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{
		{Kind: "JobFlow", Name: "f", UID: owner, Controller: ptr.To(true)},
	}}}
}

func TestReadExisting(t *testing.T) {
	live := fakeapi.NewBuilder(clientgoscheme.Scheme).WithObjects(ownedPod("ours", "1"), ownedPod("other", "2")).Build()
	owner := &metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: "1"}
	for name, want := range map[string]bool{"ours": true, "other": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		owned, err := ReadExisting(t.Context(), live, owner, pod)
		if err != nil || owned != want || len(pod.OwnerReferences) != 1 {
			t.Errorf("%s: owned %v, want %v; read %v, %v", name, owned, want, pod.OwnerReferences, err)
		}
	}
	missing := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "missing"}}
	if owned, err := ReadExisting(t.Context(), live, owner, missing); owned || !apierrors.IsNotFound(err) {
		t.Errorf("a missing object: owned %v, %v", owned, err)
	}
}

func TestControllerUIDs(t *testing.T) {
	pod := ownedPod("a", "1")
	if got := ControllerUIDs("JobFlow")(pod); !slices.Equal(got, []string{"1"}) {
		t.Errorf("index keys %v, want 1", got)
	}
	if got := ControllerUIDs("CronJobFlow")(pod); len(got) != 0 {
		t.Errorf("index keys %v for a controller of another kind", got)
	}
	if got := ControllerUIDs("JobFlow")(&corev1.Pod{}); len(got) != 0 {
		t.Errorf("index keys %v without a controller", got)
	}
}
