package events

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
)

type heard struct{ note string }

func (h *heard) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	if note == "%s" {
		note = args[0].(string)
	}
	h.note = note
}

func TestClippingRecorder_ShortensNotes(t *testing.T) {
	for _, c := range []struct{ name, note, want string }{
		{"short", "100% of it", "100% of it"},
		{"as long as may be", strings.Repeat("n", 1024), strings.Repeat("n", 1024)},
		{"one too long", strings.Repeat("n", 1025), strings.Repeat("n", 1021) + "…"},
		{"not within a letter", strings.Repeat("ü", 600), strings.Repeat("ü", 510) + "…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &heard{}
			clippingRecorder{h}.Eventf(nil, nil, "Normal", "R", "A", "%s", c.note)
			if h.note != c.want || !utf8.ValidString(h.note) {
				t.Errorf("%d bytes: %q", len(h.note), h.note)
			}
		})
	}
}
