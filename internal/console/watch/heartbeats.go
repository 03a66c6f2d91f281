package watch

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// heartbeatSlices holds the HeartbeatSlices. They cause no events, because their times change all the
// time and are read on demand.
type heartbeatSlices struct {
	watch  *cache.ListWatch // nil: there are none
	stored cache.Store
}

func newHeartbeatSlices() *heartbeatSlices {
	return &heartbeatSlices{stored: cache.NewStore(cache.MetaNamespaceKeyFunc)}
}

func (h *heartbeatSlices) watchFrom(api *rest.Config) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	k := watchedKind{version: v1alpha1.GroupVersion, resource: "heartbeatslices"}
	h.watch, err = k.listWatch(api, scheme)
	return err
}

// run watches the slices until ctx ends. In a cluster without the kind, or without the permission to
// read it, it tries again every few minutes.
func (h *heartbeatSlices) run(ctx context.Context) {
	if h.watch == nil {
		return
	}
	r := cache.NewReflectorWithOptions(h.watch, &v1alpha1.HeartbeatSlice{}, h.stored, cache.ReflectorOptions{Name: "events/heartbeatslices"})
	retry := wait.Backoff{Duration: retryFirst, Cap: 5 * time.Minute, Factor: 2, Jitter: 1, Steps: 10}
	_ = retry.DelayWithReset(clock.RealClock{}, 10*time.Minute).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		_ = r.ListAndWatchWithContext(ctx) // without slices, the times in the status are shown
		return false, nil
	})
}

// LastHeartbeat returns when the server last received a message of the robot, by its slice and its
// status. It returns nil if there was none.
func (s *Store) LastHeartbeat(r *v1alpha1.Robot) *metav1.MicroTime {
	o, _, _ := s.heartbeats.stored.GetByKey(r.Namespace + "/" + r.Status.HeartbeatSlice)
	slice, _ := o.(*v1alpha1.HeartbeatSlice)
	return r.LastHeartbeat(slice)
}
