// Package prefetch fetches the artifacts and images that tasks will need, as the server orders, so that a
// change of the tasks takes less time and needs no file server. Tasks have priority: while one is being set
// up, a transfer waits.
package prefetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// Config configures a Fetcher.
type Config struct {
	// FetchArtifact downloads a source into the cache (artifactcache.Cache). If nil, the robot has no cache.
	FetchArtifact func(ctx context.Context, r artifact.Request, wait func(ctx context.Context, bytes int) error) (int64, error)
	// PullImage pulls an image that the robot lacks.
	PullImage func(ctx context.Context, image string) error
	// HasRoom reports whether the disk is not almost full, so that an image may be pulled. If nil, it always is.
	HasRoom func() bool
	// Policy returns the robot's policy, or nil if there is none.
	Policy func() *policy.Policy
	// IsBusy reports whether a task is being set up.
	IsBusy func() bool
	// OnChange is called after the state of an order has changed. It must not block.
	OnChange func()
	// Sleep waits, or returns early with an error when ctx ends. If nil, by the clock.
	Sleep func(ctx context.Context, d time.Duration) error
	Now   func() time.Time
	Log   *slog.Logger
}

// The time limits of an order from its begin, with the waits for tasks, and of one of its images.
const (
	orderTimeout = time.Hour
	pullTimeout  = 30 * time.Minute
)

// The errors of orders that the Fetcher ends.
var (
	errOrderTimeout = fmt.Errorf("the robot has not fetched everything within %v; raise or unset spec.prefetchLimits.bytesPerSecond of the Rollout", orderTimeout)
	errReplaced     = errors.New("the server has replaced the order by another one")
)

// busyPause is the time between two checks whether a task is being set up.
const busyPause = time.Second

// burst is how many bytes a transfer with a limited rate may receive at once. It holds the largest step of a
// transfer.
const burst = 64 << 10

// Fetcher executes the newest order: the server has one at a time for a robot.
type Fetcher struct {
	config Config
	wake   chan struct{} // readable when an order was added

	mu      sync.Mutex            // guards the fields below
	reports []wire.PrefetchReport // oldest first, one for each order
	// pending is the order that is executed next. If nil, there is none.
	pending *wire.PrefetchOrder
	// cancel ends the order that is being executed. If nil, there is none.
	cancel context.CancelCauseFunc
}

// New returns a Fetcher. Run must follow.
func New(c Config) *Fetcher {
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	if c.HasRoom == nil {
		c.HasRoom = func() bool { return true }
	}
	return &Fetcher{config: c, wake: make(chan struct{}, 1)}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// errLimits refuses an order of a server with other limits.
var errLimits = errors.New("a prefetch order exceeds the limits")

// Deliver takes over an order, unless it is known. Orders that have not ended are replaced by it, and
// reported as failed.
func (f *Fetcher) Deliver(o wire.PrefetchOrder) error {
	if !o.IsWithinLimits() {
		return errLimits
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range f.reports {
		if r.ID != o.ID {
			continue
		}
		if o.Attempt <= r.Attempt {
			return nil
		}
		f.reports = append(f.reports[:i:i], f.reports[i+1:]...)
		break
	}
	f.replaceLocked(o)
	f.reports = append(f.reports, wire.PrefetchReport{ID: o.ID, Attempt: o.Attempt, State: wire.PrefetchFetching})
	f.reports = f.reports[max(0, len(f.reports)-wire.MaxPrefetchReports):]
	select {
	case f.wake <- struct{}{}:
	default:
	}
	f.config.OnChange()
	return nil
}

// replaceLocked makes an order the next one.
func (f *Fetcher) replaceLocked(o wire.PrefetchOrder) {
	if f.cancel != nil {
		f.cancel(errReplaced) // recordEnd reports it
	}
	if f.pending != nil {
		f.reportLocked(endOf(*f.pending, 0, errReplaced))
	}
	f.pending = &o
}

// reportLocked replaces the report about the same attempt of an order.
func (f *Fetcher) reportLocked(end wire.PrefetchReport) {
	for i := range f.reports {
		if f.reports[i].ID == end.ID && f.reports[i].Attempt == end.Attempt {
			f.reports[i] = end
		}
	}
}

// endOf returns the last report about an order, which has failed if err is set.
func endOf(o wire.PrefetchOrder, bytes int64, err error) wire.PrefetchReport {
	end := wire.PrefetchReport{ID: o.ID, Attempt: o.Attempt, State: wire.PrefetchDone, Bytes: bytes}
	if err != nil {
		end.State, end.Message = wire.PrefetchFailed, wire.TruncateText(err.Error(), wire.MaxPrefetchMessage)
	}
	return end
}

// Reports returns how far the robot is with its orders.
func (f *Fetcher) Reports() []wire.PrefetchReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]wire.PrefetchReport(nil), f.reports...)
}

// Run executes orders until ctx ends. It goes on without contact.
func (f *Fetcher) Run(ctx context.Context) {
	for {
		o, orderCtx := f.takeOrder(ctx)
		if o == nil {
			select {
			case <-ctx.Done():
				return
			case <-f.wake:
			}
			continue
		}
		bytes, err := f.execute(orderCtx, *o)
		if ctx.Err() != nil {
			return // the server sends the order to the next agent again
		}
		f.recordEnd(*o, bytes, err)
	}
}

// takeOrder returns the next order, with a context that ends when another one replaces it. It returns nil if
// there is none.
func (f *Fetcher) takeOrder(ctx context.Context) (*wire.PrefetchOrder, context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.pending
	if o != nil {
		f.pending = nil
		ctx, f.cancel = context.WithCancelCause(ctx)
	}
	return o, ctx
}

func (f *Fetcher) recordEnd(o wire.PrefetchOrder, bytes int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancel(nil)
	f.cancel = nil
	end := endOf(o, bytes, err)
	f.reportLocked(end)
	f.config.Log.Info("prefetch ended", "state", end.State, "bytes", bytes, "reason", end.Message)
	f.config.OnChange()
}

// execute fetches everything that the order names. It continues after an error, and returns the first one;
// but it ends with ctx or at the time limit, and returns the cause.
func (f *Fetcher) execute(ctx context.Context, o wire.PrefetchOrder) (bytes int64, err error) {
	if err := checkPolicy(f.config.Policy(), policy.Subject{Namespace: o.Namespace}, policy.RuleNamespaces); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, orderTimeout, errOrderTimeout)
	defer cancel()
	bytes, err = f.fetchAll(ctx, o)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return bytes, err
}

// fetchAll fetches everything that the order names, and returns the first error.
func (f *Fetcher) fetchAll(ctx context.Context, o wire.PrefetchOrder) (bytes int64, first error) {
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	wait := f.limitRate(o.BytesPerSecond)
	for i, a := range o.Artifacts {
		if ctx.Err() != nil {
			return bytes, context.Cause(ctx)
		}
		received, err := f.fetchArtifact(ctx, i, a, wait)
		bytes += received
		keep(err)
	}
	for _, image := range o.Images {
		if ctx.Err() != nil {
			return bytes, context.Cause(ctx)
		}
		keep(f.pullImage(ctx, o.Namespace, image))
	}
	return bytes, first
}

var errNoCache = errors.New("this robot has no cache of artifacts; set cacheQuota of its agent")

func (f *Fetcher) fetchArtifact(ctx context.Context, index int, a wire.PrefetchArtifact, wait func(context.Context, int) error) (int64, error) {
	if f.config.FetchArtifact == nil {
		return 0, errNoCache
	}
	r := artifact.Request{Index: index, Source: a.Source, Options: map[string]string{"checksum": a.Checksum}, Mode: artifact.ModeFile, Dest: "source"}
	return f.config.FetchArtifact(ctx, r, wait)
}

// driverDocker is the driver whose tasks have images.
const driverDocker = "docker"

// errNoRoom refuses an image, whose size is not known in advance.
var errNoRoom = errors.New("the disk of this robot is almost full")

func (f *Fetcher) pullImage(ctx context.Context, namespace, image string) error {
	subject := policy.Subject{Namespace: namespace, Driver: driverDocker, Image: image}
	err := checkPolicy(f.config.Policy(), subject, policy.RuleDrivers, policy.RuleImages)
	if err == nil {
		err = f.waitForTasks(ctx)
	}
	if err != nil {
		return err
	}
	if !f.config.HasRoom() {
		return fmt.Errorf("image %.100q was not pulled: %w", image, errNoRoom)
	}
	late := fmt.Errorf("image %.100q was not pulled within %v", image, pullTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, late)
	defer cancel()
	if err = f.config.PullImage(ctx, image); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// checkPolicy returns an error if the policy does not allow the subject by one of these rules, or cannot be
// used. The other rules are about how a task runs.
func checkPolicy(p *policy.Policy, s policy.Subject, rules ...string) error {
	for _, v := range policy.Evaluate(p, s) {
		if v.Rule == "" {
			return errors.New(v.String())
		}
		for _, rule := range rules {
			if v.Rule == rule {
				return errors.New(v.String())
			}
		}
	}
	return nil
}

// limitRate returns a function that blocks until so many bytes more may be received.
func (f *Fetcher) limitRate(bytesPerSecond int64) func(context.Context, int) error {
	limiter := rate.NewLimiter(rate.Inf, burst)
	if bytesPerSecond > 0 {
		limiter = rate.NewLimiter(rate.Limit(bytesPerSecond), burst)
		limiter.AllowN(f.config.Now(), burst) // the rate holds from the first byte on
	}
	return func(ctx context.Context, bytes int) error {
		if err := f.waitForTasks(ctx); err != nil {
			return err
		}
		now := f.config.Now()
		reserved := limiter.ReserveN(now, bytes)
		if !reserved.OK() {
			return fmt.Errorf("%d bytes at once exceed the limit of the rate", bytes)
		}
		if d := reserved.DelayFrom(now); d > 0 {
			return f.config.Sleep(ctx, d)
		}
		return nil
	}
}

// waitForTasks blocks while a task is being set up.
func (f *Fetcher) waitForTasks(ctx context.Context) error {
	for f.config.IsBusy() {
		if err := f.config.Sleep(ctx, busyPause); err != nil {
			return err
		}
	}
	return nil
}
