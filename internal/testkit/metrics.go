package testkit

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

// WriteRequest identifies a kind of modifying request.
type WriteRequest struct{ Verb, Group, Resource, Subresource string }

// Writes are how often each kind of write was requested.
type Writes map[WriteRequest]int

// Since returns the writes after an earlier count.
func (w Writes) Since(earlier Writes) Writes {
	later := Writes{}
	for request, n := range w {
		if n -= earlier[request]; n > 0 {
			later[request] = n
		}
	}
	return later
}

// Sum returns the number of all writes.
func (w Writes) Sum() (n int) {
	for _, of := range w {
		n += of
	}
	return n
}

// CountWrites returns how many requests of each kind an API server has received since its start,
// from all clients and with any result.
func CountWrites(t testing.TB, config *rest.Config) Writes {
	t.Helper()
	counts := Writes{}
	for _, m := range readMetrics(t, config)["apiserver_request_total"].GetMetric() {
		label := map[string]string{}
		for _, pair := range m.GetLabel() {
			label[pair.GetName()] = pair.GetValue()
		}
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, label["verb"]) {
			counts[WriteRequest{label["verb"], label["group"], label["resource"], label["subresource"]}] += int(m.GetCounter().GetValue())
		}
	}
	return counts
}

// LiveHeap returns the bytes of objects that the last garbage collection of an API server's process has
// kept.
func LiveHeap(t testing.TB, config *rest.Config) int {
	t.Helper()
	const name = "go_gc_heap_live_bytes"
	all := readMetrics(t, config)[name].GetMetric()
	if len(all) != 1 {
		t.Fatalf("the API server has %d metrics %s, want 1", len(all), name)
	}
	return int(all[0].GetGauge().GetValue())
}

// readMetrics returns the metrics of an API server by name.
func readMetrics(t testing.TB, config *rest.Config) map[string]*dto.MetricFamily {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
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
	return families
}
