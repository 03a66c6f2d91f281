package controllers

import (
	"fmt"

	events "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func failsOneOfMany(s *space) {
	s.limited("2", "only-a")
	s.server(func(t *v1alpha1.Task) lifecycle.TaskSignal {
		if t.Name == "j-g-0-t" {
			return lifecycle.TaskAttemptFailed
		}
		return lifecycle.TaskSucceeded
	})
	s.job("j", group("g", 20, "t"))
	j := s.awaitJob("j", lifecycle.JobCompleted)
	if want := `Changed to status "completed": all tasks ended, 1 of 20 failed`; j.Status.StatusDescription != want {
		s.Errorf("description %q", j.Status.StatusDescription)
	}
	if t := s.task("j-g-0-t"); t.Status.State != string(lifecycle.TaskFailed) || t.Status.Reason != "NoCapableRobot" {
		s.Errorf("%s, reason %s", t.Status.State, t.Status.Reason)
	}
}

func recordsFailuresPerRobot(s *space) {
	s.robots("told-a", "told-b")
	s.server(func(*v1alpha1.Task) lifecycle.TaskSignal { return lifecycle.TaskAttemptFailed })
	s.job("j", group("g", 1, "t"))
	for _, a := range s.awaitTask("j-g-0-t", lifecycle.TaskFailed).Status.Attempts {
		testkit.EventuallyNoError(s, waitTimeout, "event about "+a.Robot, func() error {
			var list events.EventList
			s.must(s.List(s.Context(), &list, client.InNamespace(s.name)))
			for _, e := range list.Items {
				if e.Regarding.Name == "j-g-0-t" && e.Related != nil && e.Related.Kind == "Robot" && e.Related.Name == a.Robot {
					return nil
				}
			}
			return fmt.Errorf("%d events, none names it", len(list.Items))
		})
	}
}
