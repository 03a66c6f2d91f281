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

// worker manages one pod. Only its goroutine may use it, except for enqueue.
type worker struct {
	podState
	node   *Node
	source *tokens
	paths  podPaths
	key    types.NamespacedName

	shims  map[string]*supervisor.Shim // by container; those that are running
	probes map[probeKey]context.CancelFunc
	// isDeleted reports whether the API server no longer has the pod.
	isDeleted bool
	// deleteSent reports whether the worker has deleted the pod from the API server.
	deleteSent     bool
	volumesRemoved bool      // its volumes have been removed
	retries        int       // consecutive failures to start a container
	refreshAt      time.Time // when to compare files with the API server again
	volumesMade    bool

	hostsUpdatePending atomic.Bool // an update of its /etc/hosts is pending

	mu    sync.Mutex
	inbox []func(context.Context)
	wake  chan struct{}
}

// enqueue has the worker call f in its next round.
func (w *worker) enqueue(f func(context.Context)) {
	w.mu.Lock()
	w.inbox = append(w.inbox, f)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) handleInbox(ctx context.Context) {
	w.mu.Lock()
	inbox := w.inbox
	w.inbox = nil
	w.mu.Unlock()
	for _, f := range inbox {
		f(ctx)
	}
}

// runLoop runs rounds until the pod is gone or ctx is done.
func (w *worker) runLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer w.stopProbes(func(probeKey) bool { return true })
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
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

// retryDelay is the delay after a failed request to the API server.
const retryDelay = time.Second

// runRound handles the inbox, carries out what is due and reports the status.
func (w *worker) runRound(ctx context.Context) (wakeAt time.Time, done bool) {
	w.handleInbox(ctx)
	s := w.executePlan(ctx)
	w.watchProbes(ctx)
	w.refreshFiles(ctx, &s)
	if w.isDeleted {
		if s.over {
			w.node.removePod(ctx, w)
		}
		return s.wakeAt, s.over
	}
	if err := w.finishPod(ctx, s.over); err != nil {
		if ctx.Err() == nil {
			w.node.log.Warn("cannot write the status of a pod, will try again", "pod", w.key, "error", err)
		}
		s.requeueAt(time.Now().Add(retryDelay))
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
	if w.pod.DeletionTimestamp == nil || w.deleteSent {
		return nil
	}
	err := w.node.deletePod(ctx, w.pod)
	w.deleteSent = err == nil
	return err
}

// releaseResources releases the volumes and the address of a pod that has ended. There are fewer
// addresses than ended pods.
func (w *worker) releaseResources() {
	if !w.volumesRemoved {
		w.node.network.releaseAddress(w.podIP, w.pod.UID)
		w.volumesRemoved = os.RemoveAll(w.paths.volumeDir("")) == nil
	}
}

// executePlan plans, and starts and stops containers, until there is nothing left to do now.
func (w *worker) executePlan(ctx context.Context) actions {
	if w.isDeleted && w.pod.DeletionTimestamp == nil {
		w.pod = markDeleted(w.pod)
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
	c, r := findContainer(w.pod, name), w.ownRecord(name)
	next := &run{}
	if r.last != nil {
		next.attempt, next.delay = r.last.attempt+1, delayAfter(r.last)
	}
	sh, err := w.launchShim(ctx, c, next)
	if err != nil {
		w.retries++
		r.startFailure = newStartFailure(err)
		r.retryAt = time.Now().Add(min(retryDelay<<min(w.retries-1, 4), maxRetry))
		w.node.recordEvent(w.pod, corev1.EventTypeWarning, eventReasonFor(err), err.Error())
		return
	}
	w.retries = 0
	w.pruneAttempts(name, next.attempt)
	next.started, next.ready = c.StartupProbe == nil, c.ReadinessProbe == nil
	next.postStartDone = c.Lifecycle == nil || c.Lifecycle.PostStart == nil
	*r = containerRecord{last: next, before: r.last}
	w.holdShim(name, next.attempt, sh)
}

// maxRetry bounds the delay after a failed start.
const maxRetry = 10 * time.Second

// volumeError is the failure to create a volume. The node retries.
type volumeError struct{ error }

func newStartFailure(err error) *corev1.ContainerStateWaiting {
	reason := "CreateContainerError"
	if _, is := errors.AsType[configError](err); is {
		reason = reasonConfigError
	}
	if _, is := errors.AsType[volumeError](err); is {
		reason = reasonCreating
	}
	return &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}
}

func eventReasonFor(err error) string {
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
		w.volumesMade, w.refreshAt = true, time.Now().Add(refreshInterval)
	}
	dir := w.paths.attemptPath(c.Name, next.attempt)
	spec, err := w.specOf(ctx, c, next.attempt)
	if err == nil {
		err = os.WriteFile(dir.delayFile(), []byte(next.delay.String()), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(string(dir)))
	}
	return w.node.shims.Start(spec, w.key.String()+"/"+c.Name+"/"+strconv.Itoa(next.attempt))
}

// pruneAttempts removes all runs except the last two.
func (w *worker) pruneAttempts(name string, attempt int) {
	for _, n := range w.paths.listAttempts(name) {
		if n < attempt-1 {
			_ = os.RemoveAll(string(w.paths.attemptPath(name, n)))
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
	w.shims[name] = s
	w.node.subscribeShim(s, func(n supervisor.Update) {
		w.enqueue(func(ctx context.Context) { w.handleUpdate(ctx, name, attempt, n) })
	})
}

// handleUpdate handles an update of the shim of a run.
func (w *worker) handleUpdate(ctx context.Context, name string, attempt int, n supervisor.Update) {
	r := w.ownRecord(name).last
	if r == nil || r.attempt != attempt || r.shimExited {
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

// handleEnd records that a run has ended, and kills its remaining processes.
func (w *worker) handleEnd(name string, r *run) {
	c := findContainer(w.pod, name)
	dir := w.paths.attemptPath(name, r.attempt)
	if r.state.Exit == nil && r.state.MayHaveStarted {
		if err := w.node.sweepAttempt(dir, dir.cgroupName(w.pod.UID), r.state.Started); err != nil {
			w.node.log.Warn("cannot kill the remaining processes of a container", "pod", w.key, "container", name, "error", err)
		}
	}
	r.shimExited = true
	delete(w.shims, name)
	w.stopProbes(func(k probeKey) bool { return k.container == name })
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
func (w *worker) stopContainer(ctx context.Context, name string, grace time.Duration, message string) {
	r, s, c := w.ownRecord(name).last, w.shims[name], findContainer(w.pod, name)
	r.stopping = true
	if s == nil {
		return
	}
	w.node.recordEvent(w.pod, corev1.EventTypeNormal, "Killing", message)
	w.stopProbes(func(k probeKey) bool { return k.container == name })
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || !r.isRunning() {
		_ = w.node.shims.Stop(s, stopReason, grace) // an error means that it has exited
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
			_ = w.node.shims.Stop(s, stopReason, max(time.Until(until), minGrace))
		}
	}()
}

const (
	// stopReason is the reason that shims record for a stop by the node.
	stopReason = "Stopped"
	// minGrace is the least grace period after the preStop hook.
	minGrace = 2 * time.Second
)

// shortenGrace shortens the grace period of containers that are being stopped.
func (w *worker) shortenGrace(grace time.Duration) {
	for name, s := range w.shims {
		if r := w.recordOf(name).last; r != nil && r.stopping {
			_ = w.node.shims.Stop(s, stopReason, grace)
		}
	}
}

// setPod replaces the pod with a newer version from the API server.
func (w *worker) setPod(pod *corev1.Pod) {
	if isOlder(pod, w.pod) {
		return
	}
	before := w.gracePeriod()
	wasDeleted := w.pod.DeletionTimestamp != nil
	w.pod = pod
	if wasDeleted && w.gracePeriod() < before {
		w.shortenGrace(w.gracePeriod())
	}
}

// isOlder reports whether a has an older resource version than b.
func isOlder(a, b *corev1.Pod) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX == nil && errY == nil && x < y
}

// refreshInterval is the interval at which files of volumes are compared with the API server.
const refreshInterval = time.Minute

// refreshFiles updates the files of volumes when that is due.
func (w *worker) refreshFiles(ctx context.Context, s *actions) {
	if s.over || !w.volumesMade || !w.hasRefreshableVolumes() {
		return
	}
	if !time.Now().Before(w.refreshAt) {
		w.refreshAt = time.Now().Add(refreshInterval)
		if err := w.refreshVolumes(ctx); err != nil {
			w.node.recordEvent(w.pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		}
	}
	s.requeueAt(w.refreshAt)
}

func (w *worker) hasRefreshableVolumes() bool {
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
		for _, n := range w.paths.listAttempts(c.Name) {
			next, sh, err := w.recoverRun(&c, n)
			if err != nil {
				return err
			}
			if next == nil {
				continue
			}
			*r = containerRecord{last: next, before: r.last}
			if sh != nil {
				w.holdShim(c.Name, n, sh)
			}
		}
		w.volumesMade = w.volumesMade || r.last != nil && !r.last.shimExited
	}
	return nil
}

// recoverRun restores one run. It returns nil if the run was never started.
func (w *worker) recoverRun(c *corev1.Container, n int) (*run, *supervisor.Shim, error) {
	dir := w.paths.attemptPath(c.Name, n)
	sh, state, err := w.node.shims.Adopt(dir.shimDir())
	if err != nil {
		return nil, nil, err
	}
	if sh == nil && !state.MayHaveStarted && state.Exit == nil {
		return nil, nil, os.RemoveAll(string(dir))
	}
	r := &run{attempt: n, state: state, postStartDone: true}
	text, _ := os.ReadFile(dir.delayFile())
	r.delay, _ = time.ParseDuration(string(text)) // an error leaves zero: there was no back-off
	before := findStatus(w.pod, c.Name, w.containerID(c.Name, n))
	r.started = c.StartupProbe == nil || before.Started != nil && *before.Started
	r.ready = c.ReadinessProbe == nil || before.Ready
	if sh == nil {
		w.handleEnd(c.Name, r)
	}
	return r, sh, nil
}

// findStatus returns the status of a run as the API server has it. It is empty if there is none.
func findStatus(pod *corev1.Pod, container, id string) corev1.ContainerStatus {
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
	if r.postStartDone {
		return
	}
	c := findContainer(w.pod, name)
	target := w.newTarget(c, r)
	go func() {
		err := target.runHook(ctx, c.Lifecycle.PostStart)
		w.enqueue(func(ctx context.Context) {
			if err == nil {
				r.postStartDone = true
			} else if !r.shimExited {
				w.node.recordEvent(w.pod, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
				w.stopContainer(ctx, name, w.gracePeriod(), fmt.Sprintf("FailedPostStartHook: stopping container %s", name))
			}
		})
	}()
}

// markDeleted returns a copy of a pod that was deleted with force, with a deletion timestamp.
func markDeleted(pod *corev1.Pod) *corev1.Pod {
	p := pod.DeepCopy()
	now, none := cmp.Or(p.CreationTimestamp, truncateSeconds(time.Now())), int64(0)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &none
	return p
}
