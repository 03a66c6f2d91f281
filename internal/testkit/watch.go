package testkit

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WatchObjects calls see for every object of a kind in a namespace, now and at each change,
// until stop is called. It lists again if the API server closes the watch. An error fails the
// test.
func WatchObjects[T client.Object](t testing.TB, c client.WithWatch, namespace string, list func() client.ObjectList, see func(T)) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			if err := watchOnce(ctx, c, namespace, list(), see); err != nil && ctx.Err() == nil {
				t.Errorf("follow: %v", err)
				return
			}
		}
	}()
	return stop
}

func watchOnce[T client.Object](ctx context.Context, c client.WithWatch, namespace string, list client.ObjectList, see func(T)) error {
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	show := func(o runtime.Object) error {
		if one, ok := o.(T); ok {
			see(one)
		}
		return nil
	}
	if err := meta.EachListItem(list, show); err != nil {
		return err
	}
	w, err := c.Watch(ctx, list, &client.ListOptions{Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type != watch.Deleted {
			_ = show(e.Object) // never fails
		}
	}
	return nil
}
