package prefetch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
	isFull   bool
	// hangs is the time that the pull of an image takes, unless its context ends before.
	hangs time.Duration
}

func (r *robot) fetcher() *Fetcher {
	c := Config{
		PullImage: r.pullImage, HasRoom: func() bool { return !r.isFull },
		Policy: func() *policy.Policy { return r.policy }, IsBusy: r.busy.Load,
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

func (r *robot) pullImage(ctx context.Context, image string) error {
	select {
	case <-ctx.Done():
		return errors.New("the engine has ended the pull") // as engines do, without the cause
	case <-time.After(r.hangs):
	}
	r.pulled = append(r.pulled, image)
	return nil
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
			time.Sleep(time.Millisecond + time.Since(began)/1000)
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
		"the disk is almost full":                 {&robot{hasCache: true, isFull: true}, wire.PrefetchFailed, "almost full", 1, 0},
		"an image that takes long":                {&robot{hasCache: true, hangs: pullTimeout + time.Second}, wire.PrefetchFailed, "was not pulled within 30m0s", 1, 0},
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
		time.Sleep(orderTimeout / 2)
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

// An order that is never complete does not keep others waiting.
func TestFetcher_EndsAnOrderAtItsDeadline(t *testing.T) {
	for name, change := range map[string]func(r *robot, o *wire.PrefetchOrder){
		"a slow artifact":            func(r *robot, o *wire.PrefetchOrder) { r.size, o.BytesPerSecond = 1<<20, 10 },
		"a task that is always busy": func(r *robot, _ *wire.PrefetchOrder) { r.size = 1 << 20; r.busy.Store(true) },
		"many images": func(r *robot, o *wire.PrefetchOrder) {
			r.hangs, o.Images = pullTimeout-time.Minute, []string{"a", "b", "c", "d"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, o := &robot{hasCache: true}, orderOf("x", 1)
			change(r, &o)
			end, took := execute(t, r, o)
			if took < orderTimeout || took > orderTimeout+time.Minute {
				t.Errorf("took %v, want %v", took, orderTimeout)
			}
			if end.State != wire.PrefetchFailed || !strings.Contains(end.Message, "within 1h0m0s") {
				t.Errorf("report %+v", end)
			}
		})
	}
}

// The server has one order at a time for a robot, so a newer one ends all before it.
func TestFetcher_ReplacesOrders(t *testing.T) {
	for name, test := range map[string]struct {
		next []wire.PrefetchOrder
		want []wire.PrefetchReport
	}{
		"the same again": {
			[]wire.PrefetchOrder{orderOf("x", 2), orderOf("x", 1)},
			[]wire.PrefetchReport{{ID: "x", Attempt: 2, State: wire.PrefetchDone}},
		},
		"another one": {[]wire.PrefetchOrder{orderOf("y", 1)}, []wire.PrefetchReport{
			{ID: "x", Attempt: 2, State: wire.PrefetchFailed, Message: errReplaced.Error()}, {ID: "y", Attempt: 1, State: wire.PrefetchDone},
		}},
		"the next attempt": {[]wire.PrefetchOrder{orderOf("x", 3)}, []wire.PrefetchReport{{ID: "x", Attempt: 3, State: wire.PrefetchDone}}},
		"two at once": {[]wire.PrefetchOrder{orderOf("y", 1), orderOf("z", 1)}, []wire.PrefetchReport{
			{ID: "x", Attempt: 2, State: wire.PrefetchFailed, Message: errReplaced.Error()},
			{ID: "y", Attempt: 1, State: wire.PrefetchFailed, Message: errReplaced.Error()},
			{ID: "z", Attempt: 1, State: wire.PrefetchDone},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &robot{hasCache: true, hangs: time.Minute}
				f := r.fetcher()
				ctx, cancel := context.WithCancel(t.Context())
				go f.Run(ctx)
				deliver(t, f, orderOf("x", 2))
				time.Sleep(time.Second)
				for _, o := range test.next {
					deliver(t, f, o)
				}
				time.Sleep(2 * time.Minute)
				if got := f.Reports(); !slices.Equal(got, test.want) || len(r.pulled) != 1 {
					t.Errorf("reports %+v, want %+v; pulled %v", got, test.want, r.pulled)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

func deliver(t *testing.T, f *Fetcher, o wire.PrefetchOrder) {
	t.Helper()
	if err := f.Deliver(o); err != nil {
		t.Error(err)
	}
}

func TestFetcher_DeliverKeepsLimits(t *testing.T) {
	f := (&robot{}).fetcher()
	for _, id := range strings.Split("abcdefghijklmnop", "") {
		deliver(t, f, orderOf(id, 1))
	}
	reports := f.Reports()
	if len(reports) != wire.MaxPrefetchReports || f.pending.ID != "p" {
		t.Errorf("%d reports are kept, the next order is %+v", len(reports), f.pending)
	}
	for i, r := range reports {
		if isLast := i == len(reports)-1; (r.State == wire.PrefetchFetching) != isLast {
			t.Errorf("report %+v", r)
		}
	}
	large := orderOf("large", 1)
	large.Images = make([]string, wire.MaxPrefetchImages+1)
	if err := f.Deliver(large); err == nil {
		t.Error("an order beyond the limits was accepted")
	}
}
