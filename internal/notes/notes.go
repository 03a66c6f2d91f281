// Package notes keeps the notes of events within what the API server takes.
package notes

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Limit of a note, in bytes. The API server refuses an event with a longer one, and
// nobody hears of what it told.
const Limit = 1024

// Clipped is a recorder that shortens notes to the limit.
func Clipped(r events.EventRecorder) events.EventRecorder { return clipped{r} }

type clipped struct{ events.EventRecorder }

// Eventf makes an event, whose note may be of any length.
func (c clipped) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	c.EventRecorder.Eventf(regarding, related, eventtype, reason, action, "%s", Clip(fmt.Sprintf(note, args...), Limit))
}

// Clip shortens a text to so many bytes. One that was shortened ends in "…".
func Clip(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:max(0, most-len(more))], "") + more
}
