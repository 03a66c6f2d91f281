package watchcache

import (
	"context"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// sharingStorage is the storage that fills a watch cache. What it returns shares parts with what it
// returned before, so it must not be changed. That holds for all objects in a watch cache: requests and
// watches read them at the same time.
type sharingStorage struct {
	storage.Interface
	objects objects
}

// GetList implements storage.Interface.
func (s *sharingStorage) GetList(ctx context.Context, key string, o storage.ListOptions, into runtime.Object) error {
	if err := s.Interface.GetList(ctx, key, o, into); err != nil {
		return err
	}
	if list, ok := into.(*unstructured.UnstructuredList); ok {
		s.objects.recordList(list, o.Predicate.Continue == "")
	}
	return nil
}

// Watch implements storage.Interface.
func (s *sharingStorage) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(ctx, key, o)
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(sharingDecoder{w, &s.objects}, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "")), nil
}

// sharingDecoder reads the events of a watch.
type sharingDecoder struct {
	watch.Interface
	objects *objects
}

// Decode implements watch.Decoder.
func (d sharingDecoder) Decode() (watch.EventType, runtime.Object, error) {
	e, ok := <-d.ResultChan()
	if !ok {
		return "", nil, io.EOF
	}
	if o, ok := e.Object.(*unstructured.Unstructured); ok {
		d.objects.recordEvent(e.Type, o)
	}
	return e.Type, e.Object, nil
}

// Close implements watch.Decoder.
func (d sharingDecoder) Close() { d.Stop() }
