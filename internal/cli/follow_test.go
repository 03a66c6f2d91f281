package cli

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func dialError(err error) error {
	return &url.Error{Op: "Get", URL: "https://cluster:6443/apis", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
}

func TestWatch_SurvivesServerRestart(t *testing.T) {
	b := newBench(t, job("demo"))
	var down atomic.Bool
	broken := make(chan *watch.RaceFreeFakeWatcher, 10)
	b.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if down.Load() {
			return dialError(errors.New("connection refused"))
		}
		return c.List(ctx, list, opts...)
	}
	b.hooks.Watch = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		broken <- w
		return w, nil
	}
	done := b.start("watch", "demo")
	b.awaitWatches(2)

	down.Store(true)
	(<-broken).Stop()
	(<-broken).Stop()
	// The clock advances while the server is unreachable.
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				b.clock.Add(int64(100 * time.Millisecond))
			}
		}
	}()
	b.err.await(t, "API server unreachable for")
	b.err.await(t, "(connection refused); retrying")
	close(stop)

	change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Status.State = "running" })
	down.Store(false)
	b.err.await(t, "reconnected to the API server")
	b.out.await(t, "job demo: running")
	change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Status.State = "completed" })
	// Only the list after the end of the watch contains this change.
	closeAll(broken)
	if status := b.awaitExit(done); status != 0 {
		t.Errorf("exit %d:\n%s", status, b.err.String())
	}
	if n := strings.Count(b.err.String(), "API server unreachable"); n != 1 {
		t.Errorf("the note came %d times:\n%s", n, b.err.String())
	}
}

func closeAll(watches chan *watch.RaceFreeFakeWatcher) {
	deadline := time.After(10 * time.Second)
	for range 2 {
		select {
		case w := <-watches:
			w.Stop()
		case <-deadline:
			return
		}
	}
}

func TestFollowSource_EmitsObjects(t *testing.T) {
	expired := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: 410}
	broken := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: 500}
	for _, row := range []struct {
		name   string
		status *metav1.Status
		errors int
	}{
		{"an expired version lists again without an error", expired, 0},
		{"an error in the watch is emitted, then lists again", broken, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, job("demo"))
			watches := make(chan *watch.RaceFreeFakeWatcher, 10)
			b.hooks.Watch = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				w := watch.NewRaceFreeFake()
				watches <- w
				return w, nil
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			lists, errs := 0, 0
			s := source{client: b.client, kind: jobKind, match: func(client.Object) bool { return true }}
			go func() { (<-watches).Error(row.status) }()
			err := followSource(ctx, s, b.deps.retry, func(u update) {
				if u.err != nil {
					errs++
				} else if lists++; lists == 2 {
					cancel()
				}
			})
			if err != nil || lists != 2 || errs != row.errors {
				t.Errorf("error %v, %d lists, %d errors, want 2 and %d", err, lists, errs, row.errors)
			}
		})
	}
}

func TestFollowSource_FailsIfFirstRequestIsDenied(t *testing.T) {
	b := newBench(t)
	b.hooks.List = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewForbidden(robotv1.GroupVersion.WithResource("jobs").GroupResource(), "", errors.New("no"))
	}
	s := source{client: b.client, kind: jobKind, match: func(client.Object) bool { return true }}
	if err := followSource(context.Background(), s, b.deps.retry, func(update) {}); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
}

func TestFollowSource_RemovesDeletedObjects(t *testing.T) {
	b := newBench(t, job("demo"), job("other"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last []client.Object
	s := source{client: b.client, kind: jobKind, match: func(o client.Object) bool { return o.GetName() == "demo" }}
	go func() {
		b.awaitWatches(1)
		_ = b.client.Delete(ctx, job("other"))
		_ = b.client.Delete(ctx, job("demo"))
	}()
	err := followSource(ctx, s, b.deps.retry, func(u update) {
		last = u.objects
		if len(last) == 0 {
			cancel()
		}
	})
	if err != nil || len(last) != 0 {
		t.Errorf("error %v, left %v", err, last)
	}
}

func TestRetryAfter_DoublesUpToLimit(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 200 * time.Millisecond, 3: 800 * time.Millisecond, 5: 2 * time.Second, 1000: 2 * time.Second} {
		if got := retryDelay(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}
