package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

// A subscriber at the embedded broker receives the changes of a job, also after a restart.
func TestUp_PublishesEvents(t *testing.T) {
	t.Parallel()
	s := startLegacy(t, "--publish-events", "--robots=1")
	for _, name := range []string{"first", "after-restart"} {
		l := listen(t, s.MQTTURL, "k8s4r/events/#")
		s.create(jobOf(name, 1, shell("main", "true")))
		testkit.EventuallyNoError(t, time.Minute, "the end of the job is published", func() error {
			if last := l.last(wire.EventTopic("default", "jobs", name)); !strings.Contains(last, `"to":"completed"`) {
				return fmt.Errorf("the last event is %q", last)
			}
			return nil
		})
		s.Stop()
		s.Start()
	}
}

// A job that completes leaves one Kubernetes Event: what its groups and tasks went through is in
// their status.
func TestJob_WritesOneEvent(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots=1")
	s.create(jobOf("quiet", 2, shell("main", "true")))
	s.awaitJob("quiet", "completed", time.Minute)
	var found []string
	testkit.EventuallyNoError(t, time.Minute, "the event of its end", func() error {
		var all corev1.EventList
		if err := s.List(context.Background(), &all, client.InNamespace("default")); err != nil {
			return err
		}
		found = nil
		for _, e := range all.Items {
			if strings.HasPrefix(e.InvolvedObject.Name, "quiet") {
				found = append(found, fmt.Sprintf("%s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason))
			}
		}
		if len(found) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	if want := "Job quiet: Completed"; len(found) != 1 || found[0] != want {
		t.Errorf("%d events: %q, want %q", len(found), found, want)
	}
}
