package raycluster

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, rayv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// newTestController returns a controller that reads and writes through api alone.
func newTestController(api client.Client, now func() time.Time) *Controller {
	return &Controller{
		Client: api, Live: api, own: api, Now: now, Recorder: events.NewFakeRecorder(100), Options: testOptions(),
		expect: kit.NewExpectations(now, logr.Discard()), memory: kit.NewObjectMemory(newMemory),
		peer: &kit.PeerOperator{LeaseName: KubeRayLease, LeaseReader: api},
	}
}

// mustYield fails the test unless the controller leaves its clusters to KubeRay's operator, or not.
func (c *Controller) mustYield(t *testing.T, want bool) {
	t.Helper()
	now := c.Now()
	if until, err := c.yieldToPeer(t.Context(), now); until.After(now) != want || err != nil {
		t.Fatalf("yields until %s, want %t: %v", until, want, err)
	}
}

// A controller creates no Pods beside those of an earlier leader or of KubeRay's operator that its
// cache does not have yet. The standby manager of this test started before the cluster was created.
func TestIsCacheCurrent_AfterTakeover(t *testing.T) {
	scheme := testScheme(t)
	cluster := testCluster(testGroup("g", 1, 1)) // created at t0
	unseen := pod("unseen", "g", 0)
	unseen.OwnerReferences = nil
	live := fakeapi.NewBuilder(scheme).WithObjects(cluster, unseen).Build()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ray", Name: KubeRayLease}}
	lease.Spec.HolderIdentity = ptr.To("kuberay")
	for _, c := range []struct {
		name    string
		leader  time.Duration // when this controller began to lead, after t0
		kubeRay time.Duration // the last renewal by KubeRay's operator; if 0, it never ran
		want    bool
	}{
		{"created after it began to lead", -time.Hour, 0, true},
		{"created when it began to lead: clocks may differ", -time.Second, 0, false},
		{"created before it began to lead", time.Minute, 0, false},
		{"created while KubeRay's operator ran", -time.Hour, 2 * time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := t0.Add(c.leader)
			k := newTestController(live, func() time.Time { return now })
			k.mustYield(t, false)
			if c.kubeRay != 0 {
				now = t0.Add(c.kubeRay)
				lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
				k.peer.LeaseReader = fakeapi.NewBuilder(scheme).WithObjects(lease).Build()
				k.mustYield(t, true)
				now = now.Add(time.Hour)
				k.mustYield(t, false)
			}
			in := Input{Cluster: cluster}
			if got, err := k.isCacheCurrent(t.Context(), &in); got != c.want || err != nil {
				t.Errorf("without the Pod: %t, %v", got, err)
			}
			in.Pods = append(in.Pods, unseen)
			if got, err := k.isCacheCurrent(t.Context(), &in); !got || err != nil {
				t.Errorf("with the Pod: %t, %v", got, err)
			}
		})
	}
}
