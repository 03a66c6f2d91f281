package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

// The load of repeatedEndShare: 10 minutes of 2 jobs a second with 10 tasks each.
const (
	endsRobots   = 20
	endsJobs     = 1200
	endsTasks    = 10
	endsJobPause = 500 * time.Millisecond
	// endsTimeout bounds the time from the last creation to the last end on a busy machine.
	endsTimeout = 5 * time.Minute
)

// maxRepeatedEndShare bounds the repeated reports of ends per end in a system without faults.
const maxRepeatedEndShare = 0.01

// repeatedEndShare runs short tasks on real agents, and counts the reports of ends that the server
// knew already.
func repeatedEndShare(t testing.TB, figures map[string]float64) {
	s := startSystem(t, endsRobots, "--metrics-address", "127.0.0.1:0")
	jobs := countTries(endsJobs)
	tick := time.NewTicker(endsJobPause)
	defer tick.Stop()
	for i := range jobs {
		s.createObject(s.newJob(fmt.Sprintf("ends-%d", i), endsTasks, "exit 0"))
		<-tick.C
	}
	ends := float64(jobs * endsTasks)
	testkit.EventuallyNoError(t, endsTimeout, "all tasks complete", func() error {
		if n := s.sumMetric("k8s4r_task_transitions_total", "to", string(lifecycle.TaskCompleted)); n != ends {
			time.Sleep(time.Second) // the metrics of a busy system are expensive
			return fmt.Errorf("%v of %v have", n, ends)
		}
		return nil
	})
	repeated := s.sumMetric("k8s4r_server_repeated_reports_total", "state", wire.ReportCompleted)
	figures["repeated_end_share"] = repeated / ends
	if repeated > maxRepeatedEndShare*ends {
		t.Errorf("%v of %v ends were reported again", repeated, ends)
	}
	if n := s.sumMetric("k8s4r_server_illegal_transitions_total", "state", wire.ReportCompleted); n > 0 {
		t.Errorf("%v reports of ends were illegal", n)
	}
}

// sumMetric returns the sum of a counter over all series with this label value.
func (s *system) sumMetric(name, label, value string) (sum float64) {
	answer, err := http.Get(s.MetricsURL)
	if err != nil {
		s.t.Fatalf("read metrics: %v", err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		s.t.Fatalf("read metrics: %v", err)
	}
	for _, m := range families[name].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
