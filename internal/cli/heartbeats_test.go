package cli

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// A table shows the later of the times in the status and in the slice.
func TestAdvanceHeartbeats(t *testing.T) {
	robot := func(name, namespace, slice string) *robotv1.Robot {
		r := &robotv1.Robot{ObjectMeta: metaOf(name)}
		r.Namespace = namespace
		r.Status.LastHeartbeatTime, r.Status.HeartbeatSlice = at(-10*time.Minute), slice
		return r
	}
	slice := func(namespace string, robots ...*robotv1.Robot) client.Object {
		s := &robotv1.HeartbeatSlice{ObjectMeta: metaOf("heartbeats-0")}
		s.Namespace = namespace
		for _, r := range robots {
			s.Heartbeats = append(s.Heartbeats, robotv1.RobotHeartbeat{Robot: r.Name, UID: r.UID, Time: *at(-10 * time.Second)})
		}
		return s
	}
	inSlice, other, without := robot("a", "n", "heartbeats-0"), robot("b", "m", "heartbeats-0"), robot("c", "n", "")
	again := robot("d", "n", "heartbeats-0")
	deleted := again.DeepCopy()
	deleted.UID = "deleted"
	c := fakeapi.NewBuilder(newScheme()).WithObjects(slice("n", inSlice, without, deleted), slice("m", other)).Build()
	all := []*robotv1.Robot{inSlice, other, without, again}
	advanceHeartbeats(t.Context(), c, all)
	var got []string
	for _, r := range all {
		got = append(got, sinceText(r.Status.LastHeartbeatTime, at(0).Time))
	}
	if want := "10s 10s 10m 10m"; strings.Join(got, " ") != want {
		t.Errorf("last heartbeats %v, want %s", got, want)
	}
}

// The client of the commands reads only kinds that its mapper has: it discovers none.
func TestNewMapper_HasHeartbeatSlices(t *testing.T) {
	m, err := newMapper(newScheme()).RESTMapping(robotv1.GroupVersion.WithKind("HeartbeatSlice").GroupKind(), robotv1.GroupVersion.Version)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Resource.Resource; got != "heartbeatslices" || m.Scope != meta.RESTScopeNamespace {
		t.Errorf("HeartbeatSlice is %q, not the namespaced heartbeatslices", got)
	}
}
