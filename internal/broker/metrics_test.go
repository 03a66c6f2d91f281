package broker

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestBroker_ExportsMetrics(t *testing.T) {
	b := startGuarded(t)
	newPeer(t, b, "unknown")
	newPeer(t, b, "r1")
	eventually(t, "the refused connection is closed", func() bool { return b.Stats().Connections == 1 })
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(b.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			shown[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{"k8s4r_broker_connections": 1, "k8s4r_broker_sessions": 1, "k8s4r_broker_refused_actions_total connect identity": 1} {
		if shown[name] != want {
			t.Errorf("%s is %v, want %v", name, shown[name], want)
		}
	}
}
