// Package watchcache makes the API server's watch caches of custom resources smaller. A cache has the last
// version of each object and all versions of the last 75 seconds, as maps of JSON values, which take
// several times the space of the JSON. Here they share what they have in common.
package watchcache

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// WithSharing returns options of custom resources that have the watch caches of this package.
func WithSharing(o generic.RESTOptionsGetter) generic.RESTOptionsGetter { return sharingOptions{o} }

type sharingOptions struct{ generic.RESTOptionsGetter }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o sharingOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	options.Decorator = newCachedStorage
	return options, err
}

// newCachedStorage does what registry.StorageWithCacher does, except that the cache reads through a
// sharingStorage.
func newCachedStorage(
	config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	etcd, closeEtcd, err := generic.NewRawStorage(config, newFunc, newListFunc, prefix)
	if err != nil {
		return nil, nil, fmt.Errorf("storage of %s: %w", config.GroupResource, err)
	}
	shared := &sharingStorage{Interface: etcd}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: shared, Versioner: storage.APIObjectVersioner{}, GroupResource: config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow, ResourcePrefix: prefix, KeyFunc: keyFunc, NewFunc: newFunc, NewListFunc: newListFunc,
		GetAttrsFunc: shared.objects.shareAttrs(attrs), IndexerFuncs: triggers, Indexers: indexers, Codec: config.Codec,
	})
	if err != nil {
		closeEtcd()
		return nil, nil, fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
	}
	all := cacher.NewCacheDelegator(cached, etcd)
	return all, sync.OnceFunc(func() {
		all.Stop()
		cached.Stop()
		closeEtcd()
	}), nil
}
