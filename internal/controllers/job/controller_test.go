package job

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func TestController_FailsWhenAllGroupNamesAreTaken(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	j := newInput("running").Job
	def := &j.Spec.TaskGroups[0]
	first := groupName(j, "a", nil)
	second := groupName(j, "a", map[string]bool{first: true})
	api := fakeapi.NewBuilder(scheme)
	for _, name := range []string{first, second} {
		g := newGroup(j, def, name)
		g.OwnerReferences = nil
		api.WithObjects(g)
	}
	now := func() time.Time { return noon }
	c := &Controller{Client: api.Build(), Now: now, expect: kit.NewExpectations(now, logr.Discard()), memory: kit.NewObjectMemory(newMemory)}
	c.Live = c.Client
	for _, name := range []string{first, second} {
		if again, err := c.createGroup(t.Context(), j, newGroup(j, def, name)); !again || err != nil {
			t.Errorf("%s: retry with another name %v, %v", name, again, err)
		}
	}
	if again, err := c.createGroup(t.Context(), j, newGroup(j, def, second)); again || err == nil {
		t.Errorf("with both names taken: retry %v, %v", again, err)
	}
}

// The end of a job is an event; what leads to it is only in its status.
func TestRecordEvents_OnlyOfTheEnd(t *testing.T) {
	for state, want := range map[lifecycle.JobState]string{
		lifecycle.JobUnderConstruction: "", lifecycle.JobPending: "", lifecycle.JobRunning: "", lifecycle.JobPaused: "", lifecycle.JobCancelRequested: "", lifecycle.JobRequeueing: "",
		lifecycle.JobCompleted: "Normal Completed why", lifecycle.JobCanceled: "Normal Canceled why", lifecycle.JobFailed: "Warning Failed why",
	} {
		recorder := events.NewFakeRecorder(1)
		c := &Controller{Recorder: recorder}
		c.recordEvents(newInput("running").Job, Actions{Changes: []taskcounts.Change{{To: state, Why: "why"}}})
		got := ""
		if len(recorder.Events) > 0 {
			got = <-recorder.Events
		}
		if got != want {
			t.Errorf("%s: event %q, want %q", state, got, want)
		}
	}
}
