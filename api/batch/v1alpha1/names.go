package v1alpha1

// The labels and annotations of the Pods of a Job. Those without a note stand in
// both.
const (
	// KeyJobName is the name of the Job.
	KeyJobName = "volcano.sh/job-name"
	// KeyJobNamespace is the namespace of the Job. A label only.
	KeyJobNamespace = "volcano.sh/job-namespace"
	// KeyTaskSpec is the name of the task that the Pod is a replica of.
	KeyTaskSpec = "volcano.sh/task-spec"
	// KeyTaskIndex is the number of the replica, from 0.
	KeyTaskIndex = "volcano.sh/task-index"
	// KeyQueueName is the queue of the Job.
	KeyQueueName = "volcano.sh/queue-name"
	// KeyJobVersion is status.version of the Job when it made the Pod. What an
	// older Pod does is no reason to act. An annotation only.
	KeyJobVersion = "volcano.sh/job-version"
	// KeyJobRetryCount is status.retryCount of the Job when it made the Pod. An
	// annotation only.
	KeyJobRetryCount = "volcano.sh/job-retry-count"
	// KeyTemplateUID is job-task. An annotation only.
	KeyTemplateUID = "volcano.sh/template-uid"
	// KeyGroupName is the group that a gang scheduler would place the Pod with. An
	// annotation only.
	KeyGroupName = "scheduling.k8s.io/group-name"
	// KeyOutOfSync is true on a Pod that the Job itself deletes, so that its end is
	// not taken for an eviction. An annotation only.
	KeyOutOfSync = "volcano.sh/controller-out-of-sync"
)

// The defaults of a Job.
const (
	// DefaultQueue of a Job that names none.
	DefaultQueue = "default"
	// DefaultMaxRetry of a Job, and of a task.
	DefaultMaxRetry int32 = 3
	// DefaultSchedulerName of the Pods of a Job.
	DefaultSchedulerName = "volcano"
	// DefaultTaskName, followed by its place in the list, names a task without a
	// name.
	DefaultTaskName = "default"
)
