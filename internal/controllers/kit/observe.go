package kit

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ObserveObjects calls observe for each object of the kind of none in the cache of mgr, and for each change
// of one when it happens, and forget with the last known version of one that is deleted.
func ObserveObjects[T client.Object](mgr ctrl.Manager, none T, observe, forget func(T)) error {
	informer, err := mgr.GetCache().GetInformer(context.Background(), none)
	if err != nil {
		return fmt.Errorf("informer of %T: %w", none, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { callWith(o, observe) },
		UpdateFunc: func(_, o any) { callWith(o, observe) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			callWith(o, forget)
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", none, err)
	}
	return nil
}

// callWith calls f if o is of its type: a final state may be unknown.
func callWith[T client.Object](o any, f func(T)) {
	if typed, ok := o.(T); ok {
		f(typed)
	}
}
