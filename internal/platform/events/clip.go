// Package events records Events, with notes that are as short as the API server demands.
package events

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// MaxNoteBytes bounds a note. The API server rejects an event with a longer one.
const MaxNoteBytes = 1024

// clippingRecorder is a recorder that shortens notes.
type clippingRecorder struct{ events.EventRecorder }

// Eventf records an event with a note of any length.
func (c clippingRecorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	c.EventRecorder.Eventf(regarding, related, eventtype, reason, action, "%s", ClipText(fmt.Sprintf(note, args...), MaxNoteBytes))
}

// ClipText shortens a text to so many bytes. A shortened text ends in "…".
func ClipText(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:max(0, most-len(more))], "") + more
}
