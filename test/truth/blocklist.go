package main

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	blockTries = 24
	// blockTasks would all run and fail on the only robot if it were not blocked.
	blockTasks = 12
	blockMax   = 3
)

// runBlockedAfterExact lets all tasks of a job fail on one robot, and counts the tries in which they
// stop starting there after exactly blocklistAfter failures. With four places at most that many start,
// and the three others that were under way.
func runBlockedAfterExact(t testing.TB, figures map[string]float64) {
	s := startSystem(t, 1)
	s.addPlaces()
	tries, exact := countTries(blockTries), 0
	for i := range tries {
		after, places := int32(1+i%blockMax), 1
		if i/blockMax%2 == 1 {
			places = 4
		}
		runs := s.countRunsUntilBlocked(fmt.Sprintf("block-%d", i), after, places)
		if runs >= int(after) && runs <= int(after)+places-1 {
			exact++
			continue
		}
		t.Logf("try %d: blocklistAfter %d with %d places: %d tasks ran", i, after, places, runs)
	}
	figures["blocked_after_exact"] = float64(exact) / float64(tries)
	if exact < tries {
		t.Errorf("in %d of %d tries the robot was not blocked after blocklistAfter failures", tries-exact, tries)
	}
}

// countRunsUntilBlocked runs a job whose tasks fail, and returns how many attempts really started.
func (s *system) countRunsUntilBlocked(name string, after int32, places int) int {
	trace, all := testkit.NewTrace(s.t), int32(100)
	job := s.newJob(name, blockTasks, trace.WrapScript("sleep 0.2")+"; exit 1")
	job.Spec.FailurePolicy = &v1alpha1.FailurePolicy{BlocklistAfter: &after, MaxFailedPercent: &all}
	job.Spec.TaskGroups[0].Tasks[0].Resources = &v1alpha1.Resources{
		Devices: map[string]resource.Quantity{placesName(places): resource.MustParse("1")},
	}
	s.createObject(job)
	testkit.EventuallyNoError(s.t, progressTimeout, name+" ends", func() error {
		j := s.getJob(name)
		if !lifecycle.JobState(j.Status.State).IsTerminal() {
			return fmt.Errorf("it is %q: %+v", j.Status.State, j.Status.TaskCounts)
		}
		return nil
	})
	s.deleteJob(job)
	starts, _ := trace.CountRuns(s.t)
	return len(starts)
}

// placesName is the name of a device of which the robot has n, so that it runs as many tasks that
// need one of them at the same time.
func placesName(n int) string { return fmt.Sprintf("place-of-%d", n) }

// addPlaces adds the devices to the robot.
func (s *system) addPlaces() {
	robot := s.listRobots()[0]
	patch := client.MergeFrom(robot.DeepCopy())
	robot.Spec.Capacity = map[string]resource.Quantity{placesName(1): resource.MustParse("1"), placesName(4): resource.MustParse("4")}
	if err := s.Patch(context.Background(), &robot, patch); err != nil {
		s.t.Fatalf("set the capacity of robot %s: %v", robot.Name, err)
	}
}
