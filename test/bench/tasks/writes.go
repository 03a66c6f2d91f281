package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/testkit"
)

// countWrites returns the writes of our kinds and of events since the API server started.
func countWrites(t testing.TB, cfg *rest.Config) testkit.Writes {
	t.Helper()
	all := testkit.CountWrites(t, cfg)
	maps.DeleteFunc(all, func(w testkit.WriteRequest, _ int) bool {
		ours := w.Group == "robot.k8s4r.io" || w.Resource == "events"
		return !ours || !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, w.Verb)
	})
	return all
}

// printWrites prints each kind of write, and how many of it a task costs.
func printWrites(w testkit.Writes, tasks int32) {
	var lines []string
	for r, n := range w {
		lines = append(lines, fmt.Sprintf("%8.4f  %s %s", float64(n)/float64(tasks), r.Verb, strings.Trim(r.Resource+"/"+r.Subresource, "/")))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	fmt.Printf("writes a task, of %d tasks:\n%s\n\n", tasks, strings.Join(lines, "\n"))
}
