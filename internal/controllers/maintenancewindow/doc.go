// Package maintenancewindow is the controller of MaintenanceWindows: it shows in their status whether they are open,
// when that changes, and how many robots they match. It decides nothing: the controllers that interrupt tasks read
// the specs of the windows (core/window).
package maintenancewindow
