package kit

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func TestPeerOperator_YieldUntil(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, lease, holder string
		renewed             time.Duration // before now
		want                time.Duration // after now; negative: the peer does not run
	}{
		{"a renewed lease is rechecked soon", "peer", "a", time.Second, yieldRecheckInterval},
		{"a lease that is about to expire is rechecked when it does", "peer", "a", 50 * time.Second, 10 * time.Second},
		{"an expired lease", "peer", "a", 2 * time.Minute, -time.Minute},
		{"a released lease", "peer", "", time.Second, -1},
		{"a lease of another name", "other", "a", time.Second, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			renewed := metav1.NewMicroTime(now.Add(-c.renewed))
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "somewhere", Name: c.lease},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(c.holder), RenewTime: &renewed}}
			r := PeerOperator{LeaseName: "peer", LeaseReader: fakeapi.NewBuilder(clientgoscheme.Scheme).WithObjects(lease).Build()}
			until, err := r.YieldUntil(t.Context(), now)
			if err != nil {
				t.Fatal(err)
			}
			if c.want < 0 && until.After(now) || c.want > 0 && !until.Equal(now.Add(c.want)) {
				t.Errorf("until %v, now is %v", until, now)
			}
		})
	}
}
