package hostnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/internal/agent/shims"
)

// worker goes round for one pod. All of it belongs to its goroutine, but for the
// inbox.
type worker struct {
	world
	node   *Node
	source *tokens
	places places
	key    types.NamespacedName

	held   map[string]*shims.Shim // by container, those that live
	probes map[probeKey]context.CancelFunc
	// gone: the API server does not have the pod any more.
	gone bool
	// buried: the API server was asked to forget the pod.
	buried      bool
	emptied     bool      // its volumes are gone
	retries     int       // of what was in the way of a start, in a row
	refreshAt   time.Time // when files from the API are looked at again
	volumesMade bool

	renewing atomic.Bool // its /etc/hosts is about to be

	mu    sync.Mutex
	inbox []func(context.Context)
	ring  chan struct{}
}

// tell has the worker do something in its next round.
func (w *worker) tell(what func(context.Context)) {
	w.mu.Lock()
	w.inbox = append(w.inbox, what)
	w.mu.Unlock()
	select {
	case w.ring <- struct{}{}:
	default:
	}
}

func (w *worker) takeIn(ctx context.Context) {
	w.mu.Lock()
	inbox := w.inbox
	w.inbox = nil
	w.mu.Unlock()
	for _, what := range inbox {
		what(ctx)
	}
}

// loop goes round until the pod is no more or ctx ends.
func (w *worker) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer w.endProbes(func(probeKey) bool { return true })
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.ring:
		case <-timer.C:
		}
		wakeAt, done := w.round(ctx)
		if done {
			return
		}
		timer.Stop()
		if !wakeAt.IsZero() {
			timer.Reset(max(time.Until(wakeAt), 0))
		}
	}
}

// retryAfter is the pause before the API server is asked again after it has refused
// something.
const retryAfter = time.Second

// round takes in what has come, does what is due and reports it.
func (w *worker) round(ctx context.Context) (wakeAt time.Time, done bool) {
	w.takeIn(ctx)
	s := w.carryOut(ctx)
	w.watchProbes(ctx)
	w.refresh(ctx, &s)
	if w.gone {
		if s.over {
			w.node.forget(ctx, w)
		}
		return s.wakeAt, s.over
	}
	if err := w.finish(ctx, s.over); err != nil {
		if ctx.Err() == nil {
			w.node.log.Warn("the status of a pod cannot be written, will try again", "pod", w.key, "error", err)
		}
		s.wake(time.Now().Add(retryAfter))
	}
	return s.wakeAt, false
}

// finish reports, and has the API server forget a pod that was deleted and is over.
func (w *worker) finish(ctx context.Context, over bool) error {
	if err := w.report(ctx); err != nil {
		return err
	}
	if !over {
		return nil
	}
	w.empty()
	if w.pod.DeletionTimestamp == nil || w.buried {
		return nil
	}
	err := w.node.bury(ctx, w.pod)
	w.buried = err == nil
	return err
}

// empty gives back what a pod that is over has held: its volumes, and its address,
// of which there are fewer than ended pods.
func (w *worker) empty() {
	if !w.emptied {
		w.node.network.release(w.podIP, w.pod.UID)
		w.emptied = os.RemoveAll(w.places.volume("")) == nil
	}
}

// carryOut does what is planned, and what follows from that.
func (w *worker) carryOut(ctx context.Context) steps {
	if w.gone && w.pod.DeletionTimestamp == nil {
		w.pod = deletionOf(w.pod)
	}
	for {
		now := time.Now()
		w.expired = w.overdue(now)
		s := plan(now, &w.world)
		if len(s.start)+len(s.stop) == 0 {
			return s
		}
		for _, name := range s.stop {
			w.stop(ctx, name, w.gracePeriod(), "Stopping container "+name)
		}
		for _, name := range s.start {
			w.start(ctx, name)
		}
		if ctx.Err() != nil {
			return s
		}
	}
}

// start begins the next run of a container.
func (w *worker) start(ctx context.Context, name string) {
	c, r := containerNamed(w.pod, name), w.ownRecord(name)
	next := &run{}
	if r.last != nil {
		next.attempt, next.delay = r.last.attempt+1, delayAfter(r.last)
	}
	held, err := w.launch(ctx, c, next)
	if err != nil {
		w.retries++
		r.trouble = troubleOf(err)
		r.retryAt = time.Now().Add(min(retryAfter<<min(w.retries-1, 4), maxRetry))
		w.node.event(w.pod, corev1.EventTypeWarning, eventOf(err), err.Error())
		return
	}
	w.retries = 0
	w.prune(name, next.attempt)
	next.started, next.ready = c.StartupProbe == nil, c.ReadinessProbe == nil
	next.begun = c.Lifecycle == nil || c.Lifecycle.PostStart == nil
	*r = containerRecord{last: next, before: r.last}
	w.hold(name, next.attempt, held)
}

// maxRetry bounds the pause after something was in the way of a start.
const maxRetry = 10 * time.Second

// volumeError is that a volume cannot be made now.
type volumeError struct{ error }

func troubleOf(err error) *corev1.ContainerStateWaiting {
	reason := "CreateContainerError"
	if _, is := errors.AsType[configError](err); is {
		reason = reasonConfigError
	}
	if _, is := errors.AsType[volumeError](err); is {
		reason = reasonCreating
	}
	return &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}
}

func eventOf(err error) string {
	if _, is := errors.AsType[volumeError](err); is {
		return "FailedMount"
	}
	return "Failed"
}

// launch makes what a container needs and starts its shim.
func (w *worker) launch(ctx context.Context, c *corev1.Container, next *run) (*shims.Shim, error) {
	if !w.volumesMade {
		if err := w.prepareVolumes(ctx); err != nil {
			return nil, volumeError{err}
		}
		w.volumesMade, w.refreshAt = true, time.Now().Add(refreshEvery)
	}
	dir := w.places.attempt(c.Name, next.attempt)
	spec, err := w.specOf(ctx, c, next.attempt)
	if err == nil {
		err = os.WriteFile(dir.delay(), []byte(next.delay.String()), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(string(dir)))
	}
	return w.node.keeper.Start(spec, w.key.String()+"/"+c.Name+"/"+strconv.Itoa(next.attempt))
}

// prune removes all runs but the last two.
func (w *worker) prune(name string, attempt int) {
	for _, n := range w.places.attempts(name) {
		if n < attempt-1 {
			_ = os.RemoveAll(string(w.places.attempt(name, n)))
		}
	}
}

// ownRecord is the record of a container, made when there is none.
func (w *worker) ownRecord(name string) *containerRecord {
	r := w.records[name]
	if r == nil {
		r = &containerRecord{}
		w.records[name] = r
	}
	return r
}

// hold has the worker hear what a shim says.
func (w *worker) hold(name string, attempt int, s *shims.Shim) {
	w.held[name] = s
	w.node.listen(s, func(n shims.News) {
		w.tell(func(ctx context.Context) { w.heard(ctx, name, attempt, n) })
	})
}

// heard takes in what the shim of a run has said.
func (w *worker) heard(ctx context.Context, name string, attempt int, n shims.News) {
	r := w.ownRecord(name).last
	if r == nil || r.attempt != attempt || r.gone {
		return
	}
	began := r.state.Started == nil && n.Started != nil
	r.state = n.State
	if began {
		w.node.event(w.pod, corev1.EventTypeNormal, "Started", "Started container "+name)
		w.postStart(ctx, name, r)
	}
	if n.Gone {
		w.ended(name, r)
	}
}

// ended takes in that a run is over, and ends what it has left behind.
func (w *worker) ended(name string, r *run) {
	c := containerNamed(w.pod, name)
	dir := w.places.attempt(name, r.attempt)
	if r.state.Exit == nil && r.state.Begun {
		if err := w.node.sweep(dir, dir.cgroup(w.pod.UID), r.state.Started); err != nil {
			w.node.log.Warn("processes are left of a container", "pod", w.key, "container", name, "error", err)
		}
	}
	r.gone = true
	delete(w.held, name)
	w.endProbes(func(k probeKey) bool { return k.container == name })
	r.message = terminationMessage(c, dir, r)
	if e := r.state.Exit; e != nil && e.Error != "" {
		w.node.event(w.pod, corev1.EventTypeWarning, "Failed", e.Error)
	}
	if w.willRestart(*c, r) {
		w.node.event(w.pod, corev1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, w.pod.Name, w.pod.Namespace, w.pod.UID))
	}
}

// stop asks a container to end: its preStop hook, SIGTERM, and SIGKILL when the
// grace is over.
func (w *worker) stop(ctx context.Context, name string, grace time.Duration, why string) {
	r, s, c := w.ownRecord(name).last, w.held[name], containerNamed(w.pod, name)
	r.stopping = true
	if s == nil {
		return
	}
	w.node.event(w.pod, corev1.EventTypeNormal, "Killing", why)
	w.endProbes(func(k probeKey) bool { return k.container == name })
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || !r.runs() {
		_ = w.node.keeper.Stop(s, stopCause, grace) // an error: it has ended
		return
	}
	until := time.Now().Add(grace)
	target := w.target(c, r)
	go func() {
		bound, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		if err := target.hook(bound, c.Lifecycle.PreStop); err != nil {
			w.node.event(target.pod, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: "+err.Error())
		}
		if ctx.Err() == nil {
			_ = w.node.keeper.Stop(s, stopCause, max(time.Until(until), minGrace))
		}
	}()
}

const (
	// stopCause is what a shim is told that ends a container.
	stopCause = "Stopped"
	// minGrace is left to a container after its preStop hook.
	minGrace = 2 * time.Second
)

// hurry shortens the grace of what is being stopped already.
func (w *worker) hurry(grace time.Duration) {
	for name, s := range w.held {
		if r := w.record(name).last; r != nil && r.stopping {
			_ = w.node.keeper.Stop(s, stopCause, grace)
		}
	}
}

// see takes in the pod as the API server has it.
func (w *worker) see(pod *corev1.Pod) {
	if older(pod, w.pod) {
		return
	}
	before := w.gracePeriod()
	dying := w.pod.DeletionTimestamp != nil
	w.pod = pod
	if dying && w.gracePeriod() < before {
		w.hurry(w.gracePeriod())
	}
}

// older tells of two words of the API server which came first.
func older(a, b *corev1.Pod) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX == nil && errY == nil && x < y
}

// refreshEvery is how often the files of volumes are compared with the API.
const refreshEvery = time.Minute

// refresh brings the files of volumes up to date, now and then.
func (w *worker) refresh(ctx context.Context, s *steps) {
	if s.over || !w.volumesMade || !w.hasRefreshed() {
		return
	}
	if !time.Now().Before(w.refreshAt) {
		w.refreshAt = time.Now().Add(refreshEvery)
		if err := w.refreshVolumes(ctx); err != nil {
			w.node.event(w.pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		}
	}
	s.wake(w.refreshAt)
}

func (w *worker) hasRefreshed() bool {
	for i := range w.pod.Spec.Volumes {
		if w.node.mounts() && refreshes(&w.pod.Spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}

// report writes the status of the pod when it has changed.
func (w *worker) report(ctx context.Context) error {
	want := statusOf(time.Now(), &w.world)
	pod, err := w.node.writeStatus(ctx, w.pod, want)
	if apierrors.IsNotFound(err) {
		return nil // its end is on the way to us
	}
	if err == nil && !older(pod, w.pod) {
		w.pod = pod
	}
	return err
}

// adopt finds out what has become of the pod's containers while there was no node.
func (w *worker) adopt() error {
	for _, c := range containers(w.pod) {
		r := w.ownRecord(c.Name)
		for _, n := range w.places.attempts(c.Name) {
			next, held, err := w.recall(&c, n)
			if err != nil {
				return err
			}
			if next == nil {
				continue
			}
			*r = containerRecord{last: next, before: r.last}
			if held != nil {
				w.hold(c.Name, n, held)
			}
		}
		w.volumesMade = w.volumesMade || r.last != nil && !r.last.gone
	}
	return nil
}

// recall finds one run. Nil: it was never begun.
func (w *worker) recall(c *corev1.Container, n int) (*run, *shims.Shim, error) {
	dir := w.places.attempt(c.Name, n)
	held, state, err := w.node.keeper.Adopt(dir.shim())
	if err != nil {
		return nil, nil, err
	}
	if held == nil && !state.Begun && state.Exit == nil {
		return nil, nil, os.RemoveAll(string(dir))
	}
	r := &run{attempt: n, state: state, begun: true}
	text, _ := os.ReadFile(dir.delay())
	r.delay, _ = time.ParseDuration(string(text)) // none: nobody had to wait
	before := statusNamed(w.pod, c.Name, w.containerID(c.Name, n))
	r.started = c.StartupProbe == nil || before.Started != nil && *before.Started
	r.ready = c.ReadinessProbe == nil || before.Ready
	if held == nil {
		w.ended(c.Name, r)
	}
	return r, held, nil
}

// statusNamed is what the API server has of a run. It is empty when it has nothing.
func statusNamed(pod *corev1.Pod, container, id string) corev1.ContainerStatus {
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range all {
			if s.Name == container && s.ContainerID == id {
				return s
			}
		}
	}
	return corev1.ContainerStatus{}
}

// postStart runs the hook of a container that has just started.
func (w *worker) postStart(ctx context.Context, name string, r *run) {
	if r.begun {
		return
	}
	c := containerNamed(w.pod, name)
	target := w.target(c, r)
	go func() {
		err := target.hook(ctx, c.Lifecycle.PostStart)
		w.tell(func(ctx context.Context) {
			if err == nil {
				r.begun = true
			} else if !r.gone {
				w.node.event(w.pod, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
				w.stop(ctx, name, w.gracePeriod(), fmt.Sprintf("FailedPostStartHook: stopping container %s", name))
			}
		})
	}()
}

// deletionOf is a pod that was removed by force, as if it had been asked to go.
func deletionOf(pod *corev1.Pod) *corev1.Pod {
	p := pod.DeepCopy()
	now, none := cmp.Or(p.CreationTimestamp, seconds(time.Now())), int64(0)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &none
	return p
}
