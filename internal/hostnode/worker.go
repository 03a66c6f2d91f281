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

	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// worker manages one pod. Only its goroutine may use it, except for the inbox.
type worker struct {
	podState
	node   *Node
	source *tokens
	places podPaths
	key    types.NamespacedName

	held   map[string]*supervisor.Shim // by container; those that are running
	probes map[probeKey]context.CancelFunc
	// gone reports that the API server no longer has the pod.
	gone bool
	// buried reports that the API server was asked to delete the pod.
	buried      bool
	emptied     bool      // its volumes have been removed
	retries     int       // consecutive failures to start a container
	refreshAt   time.Time // when to compare files with the API server again
	volumesMade bool

	renewing atomic.Bool // an update of its /etc/hosts is pending

	mu    sync.Mutex
	inbox []func(context.Context)
	ring  chan struct{}
}

// enqueue has the worker call what in its next round.
func (w *worker) enqueue(what func(context.Context)) {
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

// runLoop runs rounds until the pod is gone or ctx is done.
func (w *worker) runLoop(ctx context.Context) {
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
		wakeAt, done := w.runRound(ctx)
		if done {
			return
		}
		timer.Stop()
		if !wakeAt.IsZero() {
			timer.Reset(max(time.Until(wakeAt), 0))
		}
	}
}

// retryAfter is the delay after a failed request to the API server.
const retryAfter = time.Second

// runRound handles the inbox, carries out what is due and reports the status.
func (w *worker) runRound(ctx context.Context) (wakeAt time.Time, done bool) {
	w.takeIn(ctx)
	s := w.carryOut(ctx)
	w.watchProbes(ctx)
	w.refreshFiles(ctx, &s)
	if w.gone {
		if s.over {
			w.node.removePod(ctx, w)
		}
		return s.wakeAt, s.over
	}
	if err := w.finishPod(ctx, s.over); err != nil {
		if ctx.Err() == nil {
			w.node.log.Warn("the status of a pod cannot be written, will try again", "pod", w.key, "error", err)
		}
		s.requeueAt(time.Now().Add(retryAfter))
	}
	return s.wakeAt, false
}

// finishPod reports the status, and deletes a pod from the API server if it is marked for deletion
// and has ended.
func (w *worker) finishPod(ctx context.Context, over bool) error {
	if err := w.reportStatus(ctx); err != nil {
		return err
	}
	if !over {
		return nil
	}
	w.releaseResources()
	if w.pod.DeletionTimestamp == nil || w.buried {
		return nil
	}
	err := w.node.deletePod(ctx, w.pod)
	w.buried = err == nil
	return err
}

// releaseResources releases the volumes and the address of a pod that has ended. There are fewer
// addresses than ended pods.
func (w *worker) releaseResources() {
	if !w.emptied {
		w.node.network.releaseAddress(w.podIP, w.pod.UID)
		w.emptied = os.RemoveAll(w.places.volumeDir("")) == nil
	}
}

// carryOut plans and carries out the actions.
func (w *worker) carryOut(ctx context.Context) actions {
	if w.gone && w.pod.DeletionTimestamp == nil {
		w.pod = deletionOf(w.pod)
	}
	for {
		now := time.Now()
		w.expired = w.isOverdue(now)
		s := planPod(now, &w.podState)
		if len(s.start)+len(s.stop) == 0 {
			return s
		}
		for _, name := range s.stop {
			w.stopContainer(ctx, name, w.gracePeriod(), "Stopping container "+name)
		}
		for _, name := range s.start {
			w.startContainer(ctx, name)
		}
		if ctx.Err() != nil {
			return s
		}
	}
}

// startContainer starts the next run of a container.
func (w *worker) startContainer(ctx context.Context, name string) {
	c, r := containerNamed(w.pod, name), w.ownRecord(name)
	next := &run{}
	if r.last != nil {
		next.attempt, next.delay = r.last.attempt+1, delayAfter(r.last)
	}
	held, err := w.launchShim(ctx, c, next)
	if err != nil {
		w.retries++
		r.trouble = troubleOf(err)
		r.retryAt = time.Now().Add(min(retryAfter<<min(w.retries-1, 4), maxRetry))
		w.node.recordEvent(w.pod, corev1.EventTypeWarning, eventOf(err), err.Error())
		return
	}
	w.retries = 0
	w.pruneAttempts(name, next.attempt)
	next.started, next.ready = c.StartupProbe == nil, c.ReadinessProbe == nil
	next.begun = c.Lifecycle == nil || c.Lifecycle.PostStart == nil
	*r = containerRecord{last: next, before: r.last}
	w.holdShim(name, next.attempt, held)
}

// maxRetry bounds the delay after a failed start.
const maxRetry = 10 * time.Second

// volumeError reports that a volume cannot be created at present.
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

// launchShim creates what a container needs and starts its shim.
func (w *worker) launchShim(ctx context.Context, c *corev1.Container, next *run) (*supervisor.Shim, error) {
	if !w.volumesMade {
		if err := w.prepareVolumes(ctx); err != nil {
			return nil, volumeError{err}
		}
		w.volumesMade, w.refreshAt = true, time.Now().Add(refreshEvery)
	}
	dir := w.places.attemptPath(c.Name, next.attempt)
	spec, err := w.specOf(ctx, c, next.attempt)
	if err == nil {
		err = os.WriteFile(dir.delayFile(), []byte(next.delay.String()), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(string(dir)))
	}
	return w.node.keeper.Start(spec, w.key.String()+"/"+c.Name+"/"+strconv.Itoa(next.attempt))
}

// pruneAttempts removes all runs except the last two.
func (w *worker) pruneAttempts(name string, attempt int) {
	for _, n := range w.places.listAttempts(name) {
		if n < attempt-1 {
			_ = os.RemoveAll(string(w.places.attemptPath(name, n)))
		}
	}
}

// ownRecord returns the record of a container, and creates it if it is missing.
func (w *worker) ownRecord(name string) *containerRecord {
	r := w.records[name]
	if r == nil {
		r = &containerRecord{}
		w.records[name] = r
	}
	return r
}

// holdShim subscribes the worker to the updates of a shim.
func (w *worker) holdShim(name string, attempt int, s *supervisor.Shim) {
	w.held[name] = s
	w.node.subscribeShim(s, func(n supervisor.Update) {
		w.enqueue(func(ctx context.Context) { w.handleUpdate(ctx, name, attempt, n) })
	})
}

// handleUpdate handles an update of the shim of a run.
func (w *worker) handleUpdate(ctx context.Context, name string, attempt int, n supervisor.Update) {
	r := w.ownRecord(name).last
	if r == nil || r.attempt != attempt || r.gone {
		return
	}
	began := r.state.Started == nil && n.Started != nil
	r.state = n.State
	if began {
		w.node.recordEvent(w.pod, corev1.EventTypeNormal, "Started", "Started container "+name)
		w.postStart(ctx, name, r)
	}
	if n.ShimExited {
		w.handleEnd(name, r)
	}
}

// handleEnd records that a run has ended, and ends what it has left behind.
func (w *worker) handleEnd(name string, r *run) {
	c := containerNamed(w.pod, name)
	dir := w.places.attemptPath(name, r.attempt)
	if r.state.Exit == nil && r.state.MayHaveStarted {
		if err := w.node.sweepAttempt(dir, dir.cgroupName(w.pod.UID), r.state.Started); err != nil {
			w.node.log.Warn("processes are left of a container", "pod", w.key, "container", name, "error", err)
		}
	}
	r.gone = true
	delete(w.held, name)
	w.endProbes(func(k probeKey) bool { return k.container == name })
	r.message = terminationMessage(c, dir, r)
	if e := r.state.Exit; e != nil && e.Error != "" {
		w.node.recordEvent(w.pod, corev1.EventTypeWarning, "Failed", e.Error)
	}
	if w.willRestart(*c, r) {
		w.node.recordEvent(w.pod, corev1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, w.pod.Name, w.pod.Namespace, w.pod.UID))
	}
}

// stopContainer stops a container: it runs the preStop hook, sends SIGTERM, and SIGKILL when the
// grace period is over.
func (w *worker) stopContainer(ctx context.Context, name string, grace time.Duration, why string) {
	r, s, c := w.ownRecord(name).last, w.held[name], containerNamed(w.pod, name)
	r.stopping = true
	if s == nil {
		return
	}
	w.node.recordEvent(w.pod, corev1.EventTypeNormal, "Killing", why)
	w.endProbes(func(k probeKey) bool { return k.container == name })
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || !r.isRunning() {
		_ = w.node.keeper.Stop(s, stopCause, grace) // an error means that it has exited
		return
	}
	until := time.Now().Add(grace)
	target := w.newTarget(c, r)
	go func() {
		bound, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		if err := target.runHook(bound, c.Lifecycle.PreStop); err != nil {
			w.node.recordEvent(target.pod, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: "+err.Error())
		}
		if ctx.Err() == nil {
			_ = w.node.keeper.Stop(s, stopCause, max(time.Until(until), minGrace))
		}
	}()
}

const (
	// stopCause is the cause that shims get for a stop by the node.
	stopCause = "Stopped"
	// minGrace is the least grace period after the preStop hook.
	minGrace = 2 * time.Second
)

// shortenGrace shortens the grace period of containers that are being stopped.
func (w *worker) shortenGrace(grace time.Duration) {
	for name, s := range w.held {
		if r := w.recordOf(name).last; r != nil && r.stopping {
			_ = w.node.keeper.Stop(s, stopCause, grace)
		}
	}
}

// setPod replaces the pod with a newer version from the API server.
func (w *worker) setPod(pod *corev1.Pod) {
	if isOlder(pod, w.pod) {
		return
	}
	before := w.gracePeriod()
	dying := w.pod.DeletionTimestamp != nil
	w.pod = pod
	if dying && w.gracePeriod() < before {
		w.shortenGrace(w.gracePeriod())
	}
}

// isOlder reports whether a has an older resource version than b.
func isOlder(a, b *corev1.Pod) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX == nil && errY == nil && x < y
}

// refreshEvery is the interval at which files of volumes are compared with the API server.
const refreshEvery = time.Minute

// refreshFiles updates the files of volumes when that is due.
func (w *worker) refreshFiles(ctx context.Context, s *actions) {
	if s.over || !w.volumesMade || !w.hasRefreshed() {
		return
	}
	if !time.Now().Before(w.refreshAt) {
		w.refreshAt = time.Now().Add(refreshEvery)
		if err := w.refreshVolumes(ctx); err != nil {
			w.node.recordEvent(w.pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		}
	}
	s.requeueAt(w.refreshAt)
}

func (w *worker) hasRefreshed() bool {
	for i := range w.pod.Spec.Volumes {
		if w.node.usesMounts() && canRefresh(&w.pod.Spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}

// reportStatus writes the status of the pod if it has changed.
func (w *worker) reportStatus(ctx context.Context) error {
	want := statusOf(time.Now(), &w.podState)
	pod, err := w.node.writeStatus(ctx, w.pod, want)
	if apierrors.IsNotFound(err) {
		return nil // the deletion will arrive through the watch
	}
	if err == nil && !isOlder(pod, w.pod) {
		w.pod = pod
	}
	return err
}

// adoptContainers restores the runs of the pod's containers after a restart of the node.
func (w *worker) adoptContainers() error {
	for _, c := range allContainers(w.pod) {
		r := w.ownRecord(c.Name)
		for _, n := range w.places.listAttempts(c.Name) {
			next, held, err := w.recallRun(&c, n)
			if err != nil {
				return err
			}
			if next == nil {
				continue
			}
			*r = containerRecord{last: next, before: r.last}
			if held != nil {
				w.holdShim(c.Name, n, held)
			}
		}
		w.volumesMade = w.volumesMade || r.last != nil && !r.last.gone
	}
	return nil
}

// recallRun restores one run. It returns nil if the run was never started.
func (w *worker) recallRun(c *corev1.Container, n int) (*run, *supervisor.Shim, error) {
	dir := w.places.attemptPath(c.Name, n)
	held, state, err := w.node.keeper.Adopt(dir.shimDir())
	if err != nil {
		return nil, nil, err
	}
	if held == nil && !state.MayHaveStarted && state.Exit == nil {
		return nil, nil, os.RemoveAll(string(dir))
	}
	r := &run{attempt: n, state: state, begun: true}
	text, _ := os.ReadFile(dir.delayFile())
	r.delay, _ = time.ParseDuration(string(text)) // an error leaves zero: there was no back-off
	before := statusNamed(w.pod, c.Name, w.containerID(c.Name, n))
	r.started = c.StartupProbe == nil || before.Started != nil && *before.Started
	r.ready = c.ReadinessProbe == nil || before.Ready
	if held == nil {
		w.handleEnd(c.Name, r)
	}
	return r, held, nil
}

// statusNamed returns the status of a run as the API server has it. It is empty if there is none.
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

// postStart runs the hook of a container that has just been started.
func (w *worker) postStart(ctx context.Context, name string, r *run) {
	if r.begun {
		return
	}
	c := containerNamed(w.pod, name)
	target := w.newTarget(c, r)
	go func() {
		err := target.runHook(ctx, c.Lifecycle.PostStart)
		w.enqueue(func(ctx context.Context) {
			if err == nil {
				r.begun = true
			} else if !r.gone {
				w.node.recordEvent(w.pod, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
				w.stopContainer(ctx, name, w.gracePeriod(), fmt.Sprintf("FailedPostStartHook: stopping container %s", name))
			}
		})
	}()
}

// deletionOf returns a pod that was deleted with force as if it had been deleted regularly.
func deletionOf(pod *corev1.Pod) *corev1.Pod {
	p := pod.DeepCopy()
	now, none := cmp.Or(p.CreationTimestamp, truncateSeconds(time.Now())), int64(0)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &none
	return p
}
