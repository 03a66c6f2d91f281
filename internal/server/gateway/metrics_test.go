package gateway

import (
	"testing"

	dto "github.com/prometheus/client_model/go"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

func TestMetrics_ShowReportLagAndConnectedRobots(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	m := s.gateway.m
	eventually(t, "its robot is counted", func() bool { return gaugeValue(t, m.robots) == 1 && gaugeValue(t, m.brokerUp) == 1 })
	eventually(t, "its reports are measured", func() bool {
		var lag dto.Metric
		if err := m.reportLag.Write(&lag); err != nil {
			t.Fatal(err)
		}
		h := lag.GetHistogram()
		return h.GetSampleCount() >= 1 && h.GetSampleSum() > 0 && h.GetSampleSum() < waitTimeout.Seconds()
	})
	s.stop()
	if up := gaugeValue(t, m.brokerUp); up != 0 {
		t.Errorf("broker_connected is %v after the server has stopped", up)
	}
}
