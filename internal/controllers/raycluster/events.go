package raycluster

// Reporter is the reporting controller of events. Users' alert rules match it.
const Reporter = "raycluster-controller"

// The reasons of events. Reasons that contain a kind or a Pod type are formatted where they are used.
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
	// ReasonFailedDeleteGroup is the reason if the Pods of a suspended worker group cannot be deleted.
	ReasonFailedDeleteGroup  = "FailedToDeleteWorkerPodCollection"
	ReasonFailedCreateHead   = "FailedToCreateHeadPod"
	ReasonFailedCreateWorker = "FailedToCreateWorkerPod"
	// ReasonFailedUpdateCluster is the reason if the metadata or the status of the RayCluster cannot be
	// written. KubeRay has no such reason.
	ReasonFailedUpdateCluster = "FailedToUpdateRayCluster"
	// ReasonFailedUpdatePod is the reason if a Pod of another controller cannot be adopted. KubeRay has
	// no such reason.
	ReasonFailedUpdatePod = "FailedToUpdatePod"
	// ReasonPolicyNameCollision is the reason if a NetworkPolicy has the name of one of the cluster's
	// own.
	ReasonPolicyNameCollision = "NetworkPolicyNameCollision"
	// ReasonDeletedPolicy is the reason if a NetworkPolicy was deleted that the spec no longer asks for.
	ReasonDeletedPolicy = "DeletedNetworkPolicy"
	// ReasonFailedDeletePolicy is the reason if such a NetworkPolicy cannot be deleted.
	ReasonFailedDeletePolicy = "FailedToDeleteNetworkPolicy"
	// ReasonStorageDrift is the reason if the claim of the head's state differs from the spec.
	ReasonStorageDrift = "GCSStorageDrift"
	// ReasonRayNotFound is the reason if a head cannot start because its image or machine has no Ray.
	// KubeRay has no such reason.
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
