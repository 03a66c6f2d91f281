package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"
)

// A Job whose durations cannot be parsed is read, and so are all others of its list.
func TestDuration_DoesNotPreventReading(t *testing.T) {
	const list = `{"items": [
		{"metadata": {"name": "bad"}, "spec": {"runningEstimate": "soon", "policies": [{"event": "PodFailed", "action": "AbortJob", "timeout": "soon"}]}},
		{"metadata": {"name": "good"}, "spec": {"policies": [{"event": "PodFailed", "action": "AbortJob", "timeout": "1m30s"}]}}]}`
	var jobs JobList
	if err := json.Unmarshal([]byte(list), &jobs); err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{0, 90 * time.Second} {
		if got := jobs.Items[i].Spec.Policies[0].Timeout.Value(); got != want {
			t.Errorf("%s waits %v, want %v", jobs.Items[i].Name, got, want)
		}
	}
}
