package events

import (
	"context"
	"fmt"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/platform/program"
)

// NewRecorder returns a recorder that writes Events of core/v1 as the manager's user, until the
// manager stops, and shortens their notes. The source and the reporting controller of the events
// are reporter.
func NewRecorder(mgr ctrl.Manager, reporter string) (events.EventRecorder, error) {
	api, err := typedcorev1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("create client of events: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	broadcaster := events.NewBroadcaster(sink{api, newTurns()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("record events: %w", err)
	}
	if err := program.AddCloser(mgr, recording{broadcaster, cancel}); err != nil {
		return nil, err
	}
	return clippingRecorder{broadcaster.NewRecorder(mgr.GetScheme(), reporter)}, nil
}

// recording is a broadcaster that writes events.
type recording struct {
	events.EventBroadcaster
	cancel context.CancelFunc
}

// Close ends the writing of events.
func (r recording) Close() error {
	r.Shutdown()
	r.cancel()
	return nil
}
