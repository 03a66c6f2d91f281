package main

import (
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/testkit"
)

// writeCount returns how many writes of our kinds, and of events, the API server has accepted since it
// started.
func writeCount(t testing.TB, cfg *rest.Config) float64 {
	t.Helper()
	sum := 0
	for w, n := range testkit.CountWrites(t, cfg) {
		ours := w.Group == "robot.k8s4r.io" || w.Resource == "events"
		if ours && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, w.Verb) {
			sum += n
		}
	}
	return float64(sum)
}
