package program

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// order records what ended, in its order.
type order struct {
	mu    sync.Mutex
	ended []string
}

func (o *order) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, what)
}

// Close implements io.Closer.
func (o *order) Close() error { o.add("closed"); return nil }

func TestAddCloser_ClosesAfterControllersHaveEnded(t *testing.T) {
	informers := &informertest.FakeInformers{Scheme: runtime.NewScheme()}
	drain := time.Minute
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: &drain,
		NewCache: func(*rest.Config, cache.Options) (cache.Cache, error) { return informers, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var got order
	if err := AddCloser(mgr, &got); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	busy := manager.RunnableFunc(func(ctx context.Context) error { // as controllers are, it is of the leader
		close(started)
		<-ctx.Done()
		got.add("controller")
		return nil
	})
	if err := mgr.Add(busy); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	<-started
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if want := []string{"controller", "closed"}; !slices.Equal(got.ended, want) {
		t.Errorf("ended in the order %v, want %v", got.ended, want)
	}
}
