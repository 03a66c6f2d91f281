package main

import (
	"bytes"
	"context"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// writeCount is how many writes of our kinds, and of events, the API server
// has taken since it started.
func writeCount(t testing.TB, cfg *rest.Config) float64 {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatalf("read the API server's metrics: %v", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("parse the API server's metrics: %v", err)
	}
	sum := 0.0
	for _, m := range families["apiserver_request_total"].GetMetric() {
		if isWriteOfOurs(m) {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

func isWriteOfOurs(m *dto.Metric) bool {
	label := map[string]string{}
	for _, pair := range m.GetLabel() {
		label[pair.GetName()] = pair.GetValue()
	}
	ours := label["group"] == "robot.k8s4r.io" || label["resource"] == "events"
	return ours && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, label["verb"])
}
