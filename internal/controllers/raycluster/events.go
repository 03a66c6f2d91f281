package raycluster

// Reporter is the name under which the controller reports events. Users' rules for
// alarms have it.
const Reporter = "raycluster-controller"

// The reasons of events. Those that name a kind or a sort of Pod are put together
// where they are used.
const (
	ReasonAccountNotFound    = "AutoscalerServiceAccountNotFound"
	ReasonForceDeleted       = "ForceDeletedStuckCluster"
	ReasonDeletedPod         = "DeletedPod"
	ReasonDeletedHeadPod     = "DeletedHeadPod"
	ReasonDeletedWorkerPod   = "DeletedWorkerPod"
	ReasonCreatedHeadPod     = "CreatedHeadPod"
	ReasonCreatedWorkerPod   = "CreatedWorkerPod"
	ReasonFailedDeletePods   = "FailedToDeletePodCollection"
	ReasonFailedDeleteHead   = "FailedToDeleteHeadPod"
	ReasonFailedDeleteWorker = "FailedToDeleteWorkerPod"
	// ReasonFailedDeleteGroup is about a worker group that is suspended.
	ReasonFailedDeleteGroup  = "FailedToDeleteWorkerPodCollection"
	ReasonFailedCreateHead   = "FailedToCreateHeadPod"
	ReasonFailedCreateWorker = "FailedToCreateWorkerPod"
	// ReasonRayNotFound is ours: a head cannot start, for there is no Ray where it runs.
	ReasonRayNotFound = "RayNotFound"
)

// The actions of events.
const (
	actionCreate   = "Create"
	actionDelete   = "Delete"
	actionUpdate   = "Update"
	actionValidate = "Validate"
	actionCleanup  = "Cleanup"
)
