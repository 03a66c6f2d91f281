package gateway

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/window"
)

// maintenanceWindows holds those of all namespaces. Its methods may be called from any goroutine.
type maintenanceWindows struct {
	mu       sync.Mutex // guards the fields below
	byUID    map[types.UID]robotv1.MaintenanceWindow
	calendar *window.Calendar // nil: a window has changed since it was computed
}

func newMaintenanceWindows() *maintenanceWindows {
	return &maintenanceWindows{byUID: map[types.UID]robotv1.MaintenanceWindow{}}
}

func (m *maintenanceWindows) store(w *robotv1.MaintenanceWindow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, known := m.byUID[w.UID]; known && was.Generation == w.Generation {
		return // only its status has changed
	}
	m.byUID[w.UID], m.calendar = *w, nil
}

func (m *maintenanceWindows) remove(w *robotv1.MaintenanceWindow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byUID, w.UID)
	m.calendar = nil
}

// stateOf returns the state of the windows of a robot.
func (m *maintenanceWindows) stateOf(r *robotv1.Robot, now time.Time) window.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calendar == nil {
		all := make([]robotv1.MaintenanceWindow, 0, len(m.byUID))
		for _, w := range m.byUID {
			all = append(all, w)
		}
		m.calendar = window.NewCalendar(all)
	}
	is := window.RobotFrom(r)
	return m.calendar.At(now).StateOf(is.Namespace, is.Labels)
}
