package standback

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestUntil(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, lease, holder string
		renewed             time.Duration // before now
		want                time.Duration // after now; below 0: it does not run
	}{
		{"one that renews is left alone, and looked at again soon", "rival", "a", time.Second, look},
		{"one that is about to run out", "rival", "a", 50 * time.Second, 10 * time.Second},
		{"one that has run out", "rival", "a", 2 * time.Minute, -time.Minute},
		{"one that has given up its lease", "rival", "", time.Second, -1},
		{"another's lease", "other", "a", time.Second, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			renewed := metav1.NewMicroTime(now.Add(-c.renewed))
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "somewhere", Name: c.lease},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(c.holder), RenewTime: &renewed}}
			r := Rival{Lease: "rival", Leases: fake.NewClientBuilder().WithObjects(lease).Build()}
			until, err := r.Until(t.Context(), now)
			if err != nil {
				t.Fatal(err)
			}
			if c.want < 0 && until.After(now) || c.want > 0 && !until.Equal(now.Add(c.want)) {
				t.Errorf("until %v, now is %v", until, now)
			}
		})
	}
}
