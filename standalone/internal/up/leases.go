package up

import (
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// systemNamespace is the namespace in config/deploy/namespace.yaml.
const systemNamespace = "k8s4r-system"

// leaseRenewInterval is the time between two renewals of a Lease.
const leaseRenewInterval = 10 * time.Second

// addLease renews the Lease that the deployed program of this name would hold, so that tools see
// that it runs. There is no election: no other process can use the embedded API server, and a
// restart after a kill does not have to wait for the Lease to expire.
func (s *system) addLease(mgr ctrl.Manager, name string) error {
	if !s.opts.embedsCluster() {
		return nil // leader election by the lease of `up` has been won already
	}
	return mgr.Add(newLeaseHolder(mgr.GetClient(), mgr.GetAPIReader(), name))
}

// newLeaseHolder returns a runnable that renews a Lease until its context ends, and then releases it.
func newLeaseHolder(c client.Client, live client.Reader, name string) manager.RunnableFunc {
	holder := fmt.Sprintf("k8s4r up, process %d", os.Getpid())
	return func(ctx context.Context) error {
		log := ctrl.LoggerFrom(ctx).WithValues("lease", name)
		tick := time.NewTicker(leaseRenewInterval)
		defer tick.Stop()
		for {
			if err := writeHolder(ctx, c, live, name, &holder); err != nil && ctx.Err() == nil {
				log.Error(err, "cannot renew the Lease that shows that this program runs")
			}
			select {
			case <-ctx.Done():
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				_ = writeHolder(last, c, live, name, nil) // on an error the Lease expires by itself
				return nil
			case <-tick.C:
			}
		}
	}
}

// writeHolder writes the holder into a Lease. If holder is nil, the Lease is released.
func writeHolder(ctx context.Context, c client.Client, live client.Reader, name string, holder *string) error {
	now, seconds := metav1.NewMicroTime(time.Now()), int32(3*leaseRenewInterval/time.Second)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}}
	err := live.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = holder, &now, &seconds
	if apierrors.IsNotFound(err) {
		return c.Create(ctx, lease)
	}
	return c.Update(ctx, lease)
}
