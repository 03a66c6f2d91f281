package lifecycle

import (
	"strings"
	"testing"
)

func TestDrawDiagram_ShowsEveryEdge(t *testing.T) {
	for name, arrows := range map[string]int{
		"task": len(pairs(taskTable)), "job": len(pairs(jobTable)), "robot": len(pairs(robotTable)),
		"flow": len(pairs(flowTable)), "vcjob": len(pairs(vcjobTable)),
	} {
		if got := strings.Count(DrawDiagram(name), "-->"); got != arrows {
			t.Errorf("%s: %d arrows for %d pairs of states", name, got, arrows)
		}
	}
	if !strings.Contains(DrawDiagram("job"), "pause_requested --> paused : settled\n") {
		t.Errorf("a job that pauses:\n%s", DrawDiagram("job"))
	}
	if DrawDiagram("nothing") != "" {
		t.Error("DrawDiagram returned text for an unknown name")
	}
}

// pairs of states that an edge leads between.
func pairs[S ~string, G ~string](t table[S, G]) map[[2]S]bool {
	all := map[[2]S]bool{}
	for from, by := range t {
		for _, to := range by {
			all[[2]S{from, to}] = true
		}
	}
	return all
}
