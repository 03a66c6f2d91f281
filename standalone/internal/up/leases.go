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

// systemNamespace is that of config/deploy/namespace.yaml.
const systemNamespace = "k8s4r-system"

// renewEvery is the pause between two renewals of a Lease.
const renewEvery = 10 * time.Second

// addLeases has this process say that it works, by the Leases that the programs hold
// where they are deployed. Nobody else can work on an API server of its own, so there
// is nothing to elect, and a start after a kill has nobody to wait for.
func (s *system) addLeases(mgr ctrl.Manager) error {
	if !s.opts.embedsCluster() {
		return nil // it has held the lease of `up` to get here
	}
	for part, name := range map[string]string{partManager: "k8s4r-manager", partServer: "k8s4r-server"} {
		if !s.opts.runs(part) {
			continue
		}
		if err := mgr.Add(sayWorking(mgr.GetClient(), mgr.GetAPIReader(), name)); err != nil {
			return err
		}
	}
	return nil
}

// sayWorking renews a Lease until its context ends, and gives it back then.
func sayWorking(c client.Client, live client.Reader, name string) manager.RunnableFunc {
	holder := fmt.Sprintf("k8s4r up, process %d", os.Getpid())
	return func(ctx context.Context) error {
		log := ctrl.LoggerFrom(ctx).WithValues("lease", name)
		tick := time.NewTicker(renewEvery)
		defer tick.Stop()
		for {
			if err := hold(ctx, c, live, name, &holder); err != nil && ctx.Err() == nil {
				log.Error(err, "The lease by which others see that this program works cannot be renewed")
			}
			select {
			case <-ctx.Done():
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				_ = hold(last, c, live, name, nil) // an error: it ends by itself
				return nil
			case <-tick.C:
			}
		}
	}
}

// hold writes a holder into a Lease. Nil: it is given back.
func hold(ctx context.Context, c client.Client, live client.Reader, name string, holder *string) error {
	now, seconds := metav1.NewMicroTime(time.Now()), int32(3*renewEvery/time.Second)
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
