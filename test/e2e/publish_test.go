package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
