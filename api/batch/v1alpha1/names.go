package v1alpha1

// The keys of labels and annotations of a Job's Pods. Unless noted, a key is used for both.
const (
	// KeyJobName is the name of the Job.
	KeyJobName = "volcano.sh/job-name"
	// KeyJobNamespace is the namespace of the Job. Label only.
	KeyJobNamespace = "volcano.sh/job-namespace"
	// KeyTaskSpec is the name of the task of the Pod.
	KeyTaskSpec = "volcano.sh/task-spec"
	// KeyTaskIndex is the index of the replica, from 0.
	KeyTaskIndex = "volcano.sh/task-index"
	// KeyQueueName is the queue of the Job.
	KeyQueueName = "volcano.sh/queue-name"
	// KeyJobVersion is status.version of the Job when the Pod was created. Policies ignore
	// Pods of older versions. Annotation only.
	KeyJobVersion = "volcano.sh/job-version"
	// KeyJobRetryCount is status.retryCount of the Job when the Pod was created. Annotation
	// only.
	KeyJobRetryCount = "volcano.sh/job-retry-count"
	// KeyTemplateUID has the value JOB-TASK. Annotation only.
	KeyTemplateUID = "volcano.sh/template-uid"
	// KeyGroupName is the name of the group in which a gang scheduler places the Pod.
	// Annotation only.
	KeyGroupName = "scheduling.k8s.io/group-name"
	// KeyOutOfSync is true on a Pod that the controller deletes, so that the deletion does not
	// count as an eviction. Annotation only.
	KeyOutOfSync = "volcano.sh/controller-out-of-sync"
)

// The defaults of a Job.
const (
	// DefaultQueue is the queue of a Job that sets none.
	DefaultQueue = "default"
	// DefaultMaxRetry is the default of maxRetry of Jobs and tasks.
	DefaultMaxRetry int32 = 3
	// DefaultSchedulerName is the default scheduler of Pods.
	DefaultSchedulerName = "volcano"
	// DefaultTaskName, followed by the index of the task, is the name of a task that sets none.
	DefaultTaskName = "default"
)
