package gateway

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// prefetchRepeat is the time between two messages with the same order. The robot registers when it has
// received one.
const prefetchRepeat = 10 * time.Second

// prefetchDue returns the order that the robot is to be sent, or nil.
func (w *robotState) prefetchDue(now time.Time, r *robotv1.Robot) *robotv1.RobotPrefetchOrder {
	o := r.Status.PrefetchOrder
	if o == nil || r.Status.Agent == nil || !r.Status.Agent.Prefetches || w.lastSeen.IsZero() || w.disconnectReason != "" {
		return nil
	}
	if r.IsRevoked() || lifecycle.ParseRobotPhase(r.Status.Phase) != lifecycle.RobotOnline {
		return nil
	}
	for i := range r.Status.Prefetch {
		if p := &r.Status.Prefetch[i]; p.ID == o.ID && p.Attempt >= o.Attempt {
			return nil
		}
	}
	if w.sentPrefetch == o.ID && now.Sub(w.sentPrefetchAt) < prefetchRepeat {
		return nil
	}
	return o
}

// sendPrefetch sends a robot its order to fetch in advance, if that is due.
func (g *Gateway) sendPrefetch(ctx context.Context, id string, r *robotv1.Robot) error {
	if r == nil {
		return nil
	}
	w := g.stateOf(id)
	o := w.prefetchDue(g.now(), r)
	if o == nil {
		return nil
	}
	order, err := g.readPrefetchOrder(ctx, o)
	if err != nil || order == nil {
		return err
	}
	a := &wire.Response{Success: true, Message: messageAccepted, RobotID: id, UnlockMaintenance: unlockOf(r), Prefetch: order}
	a.StoresRuns = g.logs.canStore() && g.mqtt.receivesRuns.Load()
	if g.sendMessage(id, wire.KindResponse, a) {
		g.robots.updateState(id, true, func(w *robotState) { w.sentPrefetch, w.sentPrefetchAt = o.ID, g.now() })
	}
	g.robotQueue.AddAfter(id, prefetchRepeat)
	return nil
}

// readPrefetchOrder returns what an order names in its revision. It returns nil if that was deleted: the
// manager removes the order.
func (g *Gateway) readPrefetchOrder(ctx context.Context, o *robotv1.RobotPrefetchOrder) (*wire.PrefetchOrder, error) {
	var c appsv1.ControllerRevision
	err := g.apiReader.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Revision}, &c)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the revision of a prefetch order: %w", err)
	}
	content, err := jobrevision.Decode(&c)
	if err != nil {
		return nil, err
	}
	return newPrefetchOrder(o, &content), nil
}

// newPrefetchOrder returns the artifacts with a checksum and the images of the groups. Neither has
// references that depend on the robot. What exceeds the limits of an order is left out.
func newPrefetchOrder(o *robotv1.RobotPrefetchOrder, content *jobrevision.JobContent) *wire.PrefetchOrder {
	out := &wire.PrefetchOrder{ID: o.ID, Attempt: o.Attempt, Namespace: o.Namespace, BytesPerSecond: o.BytesPerSecond}
	seen := map[string]bool{}
	for _, name := range o.Groups {
		g := content.FindGroup(name)
		if g == nil {
			continue
		}
		for _, tasks := range [][]robotv1.TaskDefinition{g.InitTasks, g.Tasks} {
			for i := range tasks {
				addPrefetchItems(out, seen, &tasks[i])
			}
		}
	}
	return out
}

func addPrefetchItems(o *wire.PrefetchOrder, seen map[string]bool, t *robotv1.TaskDefinition) {
	for _, a := range t.Artifacts {
		sum := a.GetterOptions["checksum"]
		if wire.CanPrefetch(a.GetterSource, sum) && !seen[strings.ToLower(sum)] {
			seen[strings.ToLower(sum)] = true
			before := o.Artifacts
			if o.Artifacts = append(o.Artifacts, wire.PrefetchArtifact{Source: a.GetterSource, Checksum: sum}); !o.IsWithinLimits() {
				o.Artifacts = before
			}
		}
	}
	if d := t.Config.DockerConfig; d != nil && d.Image != "" && !seen[d.Image] {
		seen[d.Image] = true
		before := o.Images
		if o.Images = append(o.Images, d.Image); !o.IsWithinLimits() {
			o.Images = before
		}
	}
}

// setPrefetch sets what the robot reports about orders, after a registration.
func setPrefetch(s *robotv1.RobotStatus, reports []wire.PrefetchReport, at time.Time) {
	was := map[string]robotv1.RobotPrefetch{}
	for _, p := range s.Prefetch {
		was[p.ID] = p
	}
	s.Prefetch = nil
	for _, r := range reports {
		p := robotv1.RobotPrefetch{ID: r.ID, Attempt: r.Attempt, State: r.State, Message: r.Message, Bytes: r.Bytes}
		if before := was[p.ID]; before.State == p.State && before.Attempt == p.Attempt {
			p.At = before.At
		} else {
			p.At = &metav1.Time{Time: at.UTC().Truncate(time.Second)}
		}
		s.Prefetch = append(s.Prefetch, p)
	}
}
