package explain_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
)

func unconfirmed(t *robotv1.Task) {
	t.Status.UnconfirmedStop = &robotv1.UnconfirmedStop{Robot: "r1", Attempt: 1, Since: metav1.NewMicroTime(noon)}
}

func TestExplainTask_UnconfirmedStop(t *testing.T) {
	const summary = "it may still be running on robot r1, which has not confirmed the stop"
	fact := explain.Fact{Name: "unconfirmed", Text: "attempt 1 may still be running on robot r1, which has not confirmed the stop since 2026-01-01T12:00:00Z"}
	for _, row := range []struct {
		name        string
		task        *robotv1.Task
		wantSummary string
		wantFact    bool
	}{
		{"a canceled task", task("a", in("canceled"), onRobot("r1"), unconfirmed), summary, true},
		{"a canceled task that is confirmed", task("a", in("canceled"), onRobot("r1")), "", false},
		{"a task that waits again", task("a", unconfirmed), "its job does not let it start", true},
	} {
		got, err := explain.ExplainTask(t.Context(), around{}, row.task, noon)
		if err != nil {
			t.Fatal(err)
		}
		if got.Summary != row.wantSummary || slices.Contains(got.Facts, fact) != row.wantFact {
			t.Errorf("%s: summary %q, facts %+v", row.name, got.Summary, got.Facts)
		}
	}
}

func TestExplainJob_UnconfirmedStops(t *testing.T) {
	for stops, want := range map[int32]string{
		0: "",
		1: "one of its tasks may still be running on a robot that has not confirmed the stop",
		7: "7 of its tasks may still be running on robots that have not confirmed the stop",
	} {
		for _, state := range []string{"canceled", "running"} {
			j := job(state, "")
			j.Status.UnconfirmedStops = stops
			got := explain.ExplainJob(j, &explain.Parts{}, noon)
			if has := slices.Contains(got.Facts, explain.Fact{Name: "unconfirmed", Text: want}); has != (stops > 0) {
				t.Errorf("%s with %d: facts %+v", state, stops, got.Facts)
			}
		}
	}
}
