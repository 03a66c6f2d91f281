package program

import (
	"context"
	"io"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// AddCloser closes c when mgr stops, after all controllers have ended, on the leader and on
// standbys.
func AddCloser(mgr ctrl.Manager, c io.Closer) error { return mgr.Add(closer{c, mgr.GetCache()}) }

// closer is a runnable of the group of caches, because the manager stops that group after its
// controllers and before nothing that uses c.
type closer struct {
	closed io.Closer
	cache  cache.Cache
}

// Start blocks until ctx ends, then closes.
func (c closer) Start(ctx context.Context) error {
	<-ctx.Done()
	return c.closed.Close()
}

// GetCache assigns the runnable to the group of caches.
func (c closer) GetCache() cache.Cache { return c.cache }
