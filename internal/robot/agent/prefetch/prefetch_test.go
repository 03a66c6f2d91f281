package prefetch

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// robot is what the parts around a Fetcher do. Each artifact has size bytes.
type robot struct {
	size     int
	fetched  []string
	pulled   []string
	policy   *policy.Policy
	busy     atomic.Bool
	fail     error
	changes  atomic.Int32
	hasCache bool
}

func (r *robot) fetcher() *Fetcher {
	c := Config{
		PullImage: func(_ context.Context, image string) error { r.pulled = append(r.pulled, image); return nil },
		Policy:    func() *policy.Policy { return r.policy }, IsBusy: r.busy.Load,
		OnChange: func() { r.changes.Add(1) }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if r.hasCache {
		c.FetchArtifact = r.fetchArtifact
	}
	return New(c)
}

func (r *robot) fetchArtifact(ctx context.Context, a artifact.Request, wait func(context.Context, int) error) (int64, error) {
	for left := r.size; left > 0; left -= 16 << 10 {
		if err := wait(ctx, min(left, 16<<10)); err != nil {
			return 0, err
		}
	}
	if r.fail != nil {
		return 0, r.fail
	}
	r.fetched = append(r.fetched, a.Source)
	return int64(r.size), nil
}

func orderOf(id string, attempt int32) wire.PrefetchOrder {
	return wire.PrefetchOrder{
		ID: id, Attempt: attempt, Namespace: "default", Images: []string{"registry.example/app:2"},
		Artifacts: []wire.PrefetchArtifact{{Source: "https://files.example/a", Checksum: "sha256:0"}},
	}
}

// execute runs a Fetcher until it has reported the end of an order.
func execute(t *testing.T, r *robot, o wire.PrefetchOrder) (end wire.PrefetchReport, took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		f, began := r.fetcher(), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx)
		if err := f.Deliver(o); err != nil {
			t.Fatal(err)
		}
		for f.Reports()[0].State == wire.PrefetchFetching {
			time.Sleep(time.Millisecond)
		}
		end, took = f.Reports()[0], time.Since(began)
		cancel()
		synctest.Wait()
	})
	return end, took
}

func TestFetcher_ReportsTheEnd(t *testing.T) {
	images := func(images ...string) *policy.Policy { return &policy.Policy{Allow: policy.Rules{Images: images}} }
	for name, test := range map[string]struct {
		robot   *robot
		state   string
		message string
		fetched int
		pulled  int
	}{
		"everything was fetched":                  {&robot{hasCache: true}, wire.PrefetchDone, "", 1, 1},
		"an artifact fails":                       {&robot{hasCache: true, fail: errors.New("artifacts[0]: 404")}, wire.PrefetchFailed, "404", 0, 1},
		"no cache":                                {&robot{}, wire.PrefetchFailed, "cacheQuota", 0, 1},
		"an image that the policy does not allow": {&robot{hasCache: true, policy: images("other.example/*")}, wire.PrefetchFailed, "allow.images", 1, 0},
		"a namespace that the policy does not allow": {
			&robot{hasCache: true, policy: &policy.Policy{Allow: policy.Rules{Namespaces: []string{"other"}}}}, wire.PrefetchFailed, "allow.namespaces", 0, 0,
		},
		"rules about how a task runs do not count": {
			&robot{hasCache: true, policy: &policy.Policy{Allow: policy.Rules{Networks: []string{"none"}, Commands: []string{}}}}, wire.PrefetchDone, "", 1, 1,
		},
		"a policy that cannot be used": {&robot{hasCache: true, policy: &policy.Policy{Problem: "not valid"}}, wire.PrefetchFailed, "not valid", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.robot
			end, _ := execute(t, r, orderOf("x", 1))
			if end.State != test.state || !strings.Contains(end.Message, test.message) || len(r.fetched) != test.fetched || len(r.pulled) != test.pulled {
				t.Errorf("%+v, fetched %v, pulled %v", end, r.fetched, r.pulled)
			}
			if r.changes.Load() != 2 {
				t.Errorf("registered %d times, want at the begin and the end", r.changes.Load())
			}
		})
	}
}

func TestFetcher_LimitsTheRate(t *testing.T) {
	for rate, want := range map[int64]time.Duration{0: 0, 16 << 10: 64 * time.Second, 1 << 20: time.Second} {
		o := orderOf("x", 1)
		o.BytesPerSecond = rate
		end, took := execute(t, &robot{hasCache: true, size: 1 << 20}, o)
		if took < want || took > want+want/10+10*time.Millisecond || end.Bytes != 1<<20 {
			t.Errorf("%d bytes a second: took %v, want %v; %+v", rate, took, want, end)
		}
	}
}

// A transfer waits while a task is being set up, and then goes on.
func TestFetcher_WaitsForTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &robot{hasCache: true, size: 1 << 20}
		r.busy.Store(true)
		f := r.fetcher()
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		if err := f.Deliver(orderOf("x", 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := f.Reports()[0].State; s != wire.PrefetchFetching {
			t.Errorf("state %s while a task is set up", s)
		}
		r.busy.Store(false)
		time.Sleep(2 * busyPause)
		if s := f.Reports()[0].State; s != wire.PrefetchDone {
			t.Errorf("state %s afterwards", s)
		}
		cancel()
		synctest.Wait()
	})
}

func TestFetcher_Deliver(t *testing.T) {
	f := (&robot{}).fetcher()
	deliver := func(o wire.PrefetchOrder) {
		t.Helper()
		if err := f.Deliver(o); err != nil {
			t.Error(err)
		}
	}
	deliver(orderOf("x", 2))
	deliver(orderOf("x", 2)) // repeated
	deliver(orderOf("x", 1)) // late
	if len(f.pending) != 1 {
		t.Errorf("%d orders, want 1", len(f.pending))
	}
	deliver(orderOf("x", 3)) // the next attempt
	if len(f.pending) != 2 || len(f.Reports()) != 1 || f.Reports()[0].Attempt != 3 {
		t.Errorf("%d orders, reports %+v", len(f.pending), f.Reports())
	}
	for _, id := range strings.Split("abcdefghijklmnop", "") {
		deliver(orderOf(id, 1))
	}
	if len(f.pending) > wire.MaxPrefetchReports || len(f.Reports()) > wire.MaxPrefetchReports {
		t.Errorf("%d orders and %d reports are kept", len(f.pending), len(f.Reports()))
	}
	large := orderOf("large", 1)
	large.Images = make([]string, wire.MaxPrefetchItems+1)
	if err := f.Deliver(large); err == nil {
		t.Error("an order beyond the limits was accepted")
	}
}
