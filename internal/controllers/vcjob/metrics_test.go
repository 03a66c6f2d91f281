package vcjob

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// readCounts returns the values of a counter by job_name and queue_name.
func readCounts(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	series := make(chan prometheus.Metric, 100)
	c.Collect(series)
	close(series)
	counts := map[string]float64{}
	for one := range series {
		var m dto.Metric
		if err := one.Write(&m); err != nil {
			t.Fatal(err)
		}
		counts[m.Label[0].GetValue()+" in "+m.Label[1].GetValue()] = m.Counter.GetValue()
	}
	return counts
}

func countLatencies(t *testing.T) uint64 {
	t.Helper()
	var m dto.Metric
	if err := podLatency.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Histogram.GetSampleCount()
}

func TestController_CountsEndsUntilJobIsDeleted(t *testing.T) {
	for _, c := range []struct {
		end    corev1.PodPhase
		counts prometheus.Collector
		others prometheus.Collector
	}{{corev1.PodSucceeded, completedCount, failedCount}, {corev1.PodFailed, failedCount, completedCount}} {
		j := job("", 1, 1)
		j.Spec.Queue = "night"
		b, before := newBench(t, 0, false, j), countLatencies(t)
		for range 6 {
			b.look()
			b.kubelet(map[string]corev1.PodPhase{"j-a-0": c.end, "j-b-0": c.end})
		}
		b.look()
		b.look()
		const series = "ns/j in night"
		if counts := readCounts(t, c.counts); counts[series] != 1 {
			t.Errorf("%s: counts %v, the Job is %s", c.end, counts, b.job().Status.State.Phase)
		}
		if counts := readCounts(t, c.others); counts[series] != 0 {
			t.Errorf("%s: the other counter has %v", c.end, counts)
		}
		if n := countLatencies(t) - before; n != 2 {
			t.Errorf("%s: %d latencies of two Pods", c.end, n)
		}
		if err := b.Delete(t.Context(), b.job()); err != nil {
			t.Fatal(err)
		}
		b.look()
		if counts := readCounts(t, c.counts); len(counts) != 0 {
			t.Errorf("%s: after the deletion of the Job the counts are %v", c.end, counts)
		}
	}
}

func TestObservePodCreation_IgnoresRestarts(t *testing.T) {
	before := countLatencies(t)
	observePodCreation(t0, &batchv1.Job{Status: batchv1.JobStatus{RetryCount: 1}})
	observePodCreation(t0, &batchv1.Job{Status: batchv1.JobStatus{Version: 1}})
	if n := countLatencies(t) - before; n != 0 {
		t.Errorf("%d latencies of Pods after a restart", n)
	}
}
