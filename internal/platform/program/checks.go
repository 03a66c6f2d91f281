package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// AddCommonChecks adds the checks of every program: it answers at all, the API server answers,
// and the caches are filled.
func AddCommonChecks(mgr ctrl.Manager, h *Health) error {
	server, err := newServerCheck(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	caches := &cachesCheck{cache: mgr.GetCache()}
	ping := Check{Name: "ping", Test: func(context.Context) (string, error) { return "", nil }}
	h.AddLive(ping)
	h.AddReady(ping)
	h.AddReady(Check{Name: "kube-apiserver", Test: server.checkServer})
	h.AddReady(Check{Name: "caches", Test: caches.checkCaches})
	return mgr.Add(caches)
}

// AddLeaderCheck adds whether this instance leads, for programs of which one instance works.
func AddLeaderCheck(mgr ctrl.Manager, h *Health) {
	h.AddReady(Check{Name: "leader", Test: checkLeader(mgr.Elected())})
}

// checkLeader reports whether this instance leads or stands by. Both are healthy.
func checkLeader(elected <-chan struct{}) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		select {
		case <-elected:
			return "this instance leads", nil
		default:
			return "this instance stands by", nil
		}
	}
}

// serverGrace is how long the API server may fail to answer before the program is not ready: a
// slow API server, or one that is replaced, must not make every program of the cluster unready.
const serverGrace = 10 * time.Second

// serverCheck requests the version of the API server, which every client may.
type serverCheck struct {
	ask func(context.Context) error
	now func() time.Time

	mu   sync.Mutex
	last time.Time // when it answered; zero: never
}

func newServerCheck(config *rest.Config, over *http.Client) (*serverCheck, error) {
	c, err := discovery.NewDiscoveryClientForConfigAndClient(config, over)
	if err != nil {
		return nil, fmt.Errorf("create client of the API server: %w", err)
	}
	ask := func(ctx context.Context) error { return c.RESTClient().Get().AbsPath("/version").Do(ctx).Error() }
	return &serverCheck{ask: ask, now: time.Now}, nil
}

func (s *serverCheck) checkServer(ctx context.Context) (string, error) {
	err := s.ask(ctx)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.last = now
		return "", nil
	}
	if silent := now.Sub(s.last); !s.last.IsZero() && silent < serverGrace {
		return fmt.Sprintf("silent for %s: %v", silent.Round(time.Second), err), nil
	}
	return "", fmt.Errorf("the API server does not answer: %w", err)
}

// cachesCheck passes once the caches are filled.
type cachesCheck struct {
	cache  interface{ WaitForCacheSync(context.Context) bool }
	filled atomic.Bool
}

// NeedLeaderElection returns false: an instance that stands by fills its caches, too.
func (*cachesCheck) NeedLeaderElection() bool { return false }

// Start waits for the caches.
func (c *cachesCheck) Start(ctx context.Context) error {
	c.filled.Store(c.cache.WaitForCacheSync(ctx))
	return nil
}

func (c *cachesCheck) checkCaches(context.Context) (string, error) {
	if !c.filled.Load() {
		return "", errors.New("not filled yet")
	}
	return "", nil
}

// serveHealth answers on address from before the caches are filled until mgr has stopped.
func (h *Health) serveHealth(mgr ctrl.Manager, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address=%s: %w", address, err)
	}
	mux := http.NewServeMux()
	h.Register(mux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 20, IdleTimeout: 90 * time.Second}
	return mgr.Add(&manager.Server{Name: "health probe", Server: server, Listener: l})
}
