package vcjob

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Names, labels and unit are Volcano's. The series of a Job are deleted with it.
var (
	completedCount = newPhaseCounter("volcano_job_completed_phase_count", "Vcjobs that reached the phase Completed, by namespace/name and queue.")
	failedCount    = newPhaseCounter("volcano_job_failed_phase_count", "Vcjobs that reached the phase Failed, by namespace/name and queue.")
	podLatency     = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "volcano_controller_job_to_pod_creation_latency_milliseconds",
		Help:    "Time from the creation of a vcjob to that of each of its Pods before the first restart.",
		Buckets: prometheus.ExponentialBuckets(8, 2, 15), // 8ms to 131s
	})
)

const (
	labelJob   = "job_name"
	labelQueue = "queue_name"
)

func newPhaseCounter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{labelJob, labelQueue})
}

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this controller.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{completedCount, failedCount, podLatency}
}

// countEnd counts a Job that has entered a phase, if it has completed or failed.
func countEnd(j *batchv1.Job, to lifecycle.VCJobPhase) {
	switch to {
	case lifecycle.VCJobCompleted:
		completedCount.WithLabelValues(j.Namespace+"/"+j.Name, Defaulted(&j.Spec).Queue).Inc()
	case lifecycle.VCJobFailed:
		failedCount.WithLabelValues(j.Namespace+"/"+j.Name, Defaulted(&j.Spec).Queue).Inc()
	default:
	}
}

// deleteCounts deletes the counts of a deleted Job.
func deleteCounts(namespace, name string) {
	deleted := prometheus.Labels{labelJob: namespace + "/" + name}
	completedCount.DeletePartialMatch(deleted)
	failedCount.DeletePartialMatch(deleted)
}

// observePodCreation measures a Pod that was created for a Job, unless it replaces another one.
func observePodCreation(now time.Time, j *batchv1.Job) {
	if j.Status.Version == 0 && j.Status.RetryCount == 0 {
		podLatency.Observe(float64(max(0, now.Sub(j.CreationTimestamp.Time)).Milliseconds()))
	}
}
