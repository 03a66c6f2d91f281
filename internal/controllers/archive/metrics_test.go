package archive

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"k8s4r.io/k8s4r/internal/archive"
)

func read(t *testing.T, m prometheus.Metric) *dto.Metric {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func TestMetrics_RecordedObjects(t *testing.T) {
	now := time.Now()
	ended := archive.Object{Kind: archive.Task, Finished: now.Add(-2 * time.Second)}
	running := archive.Object{Kind: archive.Task}
	count := func() float64 { return read(t, recorded.WithLabelValues("Task")).GetCounter().GetValue() }
	before, lagged := count(), read(t, lagSeconds).GetHistogram()
	observeTransaction(now.Add(-time.Second), now, []archive.Object{ended, running}, nil)
	if n := count() - before; n != 2 {
		t.Errorf("%v objects counted, want 2", n)
	}
	after := read(t, lagSeconds).GetHistogram()
	if n, sum := after.GetSampleCount()-lagged.GetSampleCount(), after.GetSampleSum()-lagged.GetSampleSum(); n != 1 || sum != 2 {
		t.Errorf("%d lags with a sum of %vs, want one of 2s", n, sum)
	}

	failed := read(t, failures).GetCounter().GetValue()
	observeTransaction(now, now, []archive.Object{running}, errors.New("no"))
	if count()-before != 2 || read(t, failures).GetCounter().GetValue()-failed != 1 {
		t.Error("a failed transaction counts as recorded")
	}
}

func TestMetrics_UnreachableArchive(t *testing.T) {
	var l archiveHealth
	for _, err := range []error{nil, errors.New("down"), errors.New("down"), nil} {
		l.reportResult(t.Context(), err)
		want := 1.0
		if err != nil {
			want = 0
		}
		if got := read(t, reachable.WithLabelValues()).GetGauge().GetValue(); got != want {
			t.Errorf("after error %v the gauge is %v", err, got)
		}
	}
}
