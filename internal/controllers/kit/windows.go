package kit

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/window"
)

// Windows reads the maintenance windows of the cluster, and parses them only after one of them has changed. Its
// methods may be called from any goroutine.
type Windows struct {
	mu       sync.Mutex // guards the fields below
	versions map[types.UID]int64
	calendar *window.Calendar
}

// Read returns all maintenance windows that the reader knows.
func (w *Windows) Read(ctx context.Context, c client.Reader) (*window.Calendar, error) {
	var all v1alpha1.MaintenanceWindowList
	if err := c.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list maintenance windows: %w", err)
	}
	versions := make(map[types.UID]int64, len(all.Items))
	for i := range all.Items {
		versions[all.Items[i].UID] = all.Items[i].Generation
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calendar == nil || !maps.Equal(w.versions, versions) {
		w.versions, w.calendar = versions, window.NewCalendar(all.Items)
	}
	return w.calendar, nil
}
