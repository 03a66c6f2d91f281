package v1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// AutoscalerVersion of Ray's autoscaler.
//
// +kubebuilder:validation:Enum=v1;v2
type AutoscalerVersion string

// The versions of Ray's autoscaler.
const (
	AutoscalerV1 AutoscalerVersion = "v1"
	AutoscalerV2 AutoscalerVersion = "v2"
)

// AutoscalerOptions are the settings of Ray's autoscaler, which runs in a container of the head
// Pod.
type AutoscalerOptions struct {
	// Resources of the container. If not set, 500m CPU and 512Mi of memory.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Image of the container. If not set, that of the head.
	// +optional
	Image *string `json:"image,omitempty"`
	// ImagePullPolicy of the container. If not set, IfNotPresent.
	// +optional
	ImagePullPolicy *corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// SecurityContext of the container.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
	// IdleTimeoutSeconds is the number of seconds after which an idle worker is removed. If not
	// set, 60.
	// +optional
	// +kubebuilder:validation:Maximum=315360000
	IdleTimeoutSeconds *int32 `json:"idleTimeoutSeconds,omitempty"`
	// UpscalingMode defines how fast workers are added. If not set, Default.
	// +optional
	// +kubebuilder:validation:Enum=Default;Aggressive;Conservative
	UpscalingMode *string `json:"upscalingMode,omitempty"`
	// Version of the autoscaler. If not set, the default of the version of Ray.
	// +optional
	Version *AutoscalerVersion `json:"version,omitempty"`
	// Env of the container, in addition to the variables that the controller sets.
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
	// EnvFrom of the container.
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// VolumeMounts of the container.
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// Command of the container. It replaces the default command, which is in the variable
	// KUBERAY_GEN_AUTOSCALER_START_CMD.
	// +optional
	Command []string `json:"command,omitempty"`
	// Args of the container. They replace the default arguments.
	// +optional
	Args []string `json:"args,omitempty"`
}

// GcsFaultToleranceBackend is the storage of the head's state.
//
// +kubebuilder:validation:Enum=redis;rocksdb
type GcsFaultToleranceBackend string

// The backends.
const (
	BackendRedis   GcsFaultToleranceBackend = "redis"
	BackendRocksDB GcsFaultToleranceBackend = "rocksdb"
)

// GcsFaultToleranceOptions store the state of the head outside its Pod.
//
// +kubebuilder:validation:XValidation:rule="(has(self.backend) ? self.backend : 'redis') == (has(oldSelf.backend) ? oldSelf.backend : 'redis')",message="backend cannot change; create another RayCluster"
type GcsFaultToleranceOptions struct {
	// Backend that stores the state: in Redis, or on a volume of the head Pod (rocksdb). If empty,
	// redis. It cannot change.
	// +optional
	Backend GcsFaultToleranceBackend `json:"backend,omitempty"`
	// RedisAddress is the address of Redis as host:port, or a list of addresses. Only for redis, as
	// are the other fields but storage.
	// +optional
	RedisAddress string `json:"redisAddress,omitempty"`
	// RedisUsername is the user name for Redis.
	// +optional
	RedisUsername *RedisCredential `json:"redisUsername,omitempty"`
	// RedisPassword is the password for Redis.
	// +optional
	RedisPassword *RedisCredential `json:"redisPassword,omitempty"`
	// ExternalStorageNamespace separates the keys of this cluster from those of others. If empty,
	// the UID of the object.
	// +optional
	ExternalStorageNamespace string `json:"externalStorageNamespace,omitempty"`
	// Storage is the volume of the backend rocksdb. If not set, a claim of 1Gi is created.
	// +optional
	Storage *GcsStorage `json:"storage,omitempty"`
}

// RedisCredential is a value or a reference to it.
type RedisCredential struct {
	// Value as plain text.
	// +optional
	Value string `json:"value,omitempty"`
	// ValueFrom refers to the value, for example in a Secret.
	// +optional
	ValueFrom *corev1.EnvVarSource `json:"valueFrom,omitempty"`
}

// StorageDeletionPolicy defines what happens to a created claim when its cluster is deleted.
//
// +kubebuilder:validation:Enum=DeleteWithCluster;Retain
type StorageDeletionPolicy string

// The deletion policies.
const (
	// DeleteWithCluster deletes the claim with the cluster.
	DeleteWithCluster StorageDeletionPolicy = "DeleteWithCluster"
	// RetainStorage keeps the claim. A later cluster of the same name uses it.
	RetainStorage StorageDeletionPolicy = "Retain"
)

// GcsStorage is the volume on which RocksDB stores the state of the head.
type GcsStorage struct {
	// ClaimName is the name of an existing claim, which is used as it is. If empty, the claim
	// <cluster>-gcs-pvc is created.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Size of the created claim. If not set, 1Gi. Later changes have no effect on the claim.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClassName of the created claim. If not set, the default class.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
	// AccessModes of the created claim. If empty, ReadWriteOnce.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// SubPath is the directory in the volume. If empty, its root.
	// +optional
	SubPath string `json:"subPath,omitempty"`
	// DeletionPolicy of the created claim. DeleteWithCluster deletes it with the cluster, Retain
	// keeps it for a later cluster of the same name. If empty, DeleteWithCluster.
	// +optional
	DeletionPolicy StorageDeletionPolicy `json:"deletionPolicy,omitempty"`
}

// AuthMode defines how clients authenticate.
//
// +kubebuilder:validation:Enum=disabled;token
type AuthMode string

// The modes.
const (
	// AuthDisabled accepts all clients.
	AuthDisabled AuthMode = "disabled"
	// AuthToken accepts clients with the token.
	AuthToken AuthMode = "token"
)

// AuthOptions define how clients authenticate.
type AuthOptions struct {
	// Mode of authentication. disabled accepts all clients, token accepts clients with the token.
	// If empty, all clients are accepted, but the Secret with the token is created.
	// +optional
	Mode AuthMode `json:"mode,omitempty"`
	// SecretName is the name of a Secret with the token under the key auth_token. If empty, the
	// Secret is created.
	// +optional
	SecretName *string `json:"secretName,omitempty"`
	// EnableK8sTokenAuth accepts authorized Kubernetes tokens instead. Requires mode token and Ray
	// 2.55.
	// +optional
	EnableK8sTokenAuth *bool `json:"enableK8sTokenAuth,omitempty"`
}

// NetworkPolicyMode defines which connections of the Pods are denied unless a rule allows them.
//
// +kubebuilder:validation:Enum=DenyAll;DenyAllIngress;DenyAllEgress
type NetworkPolicyMode string

// The modes.
const (
	// DenyAll denies connections from and to the Pods.
	DenyAll NetworkPolicyMode = "DenyAll"
	// DenyAllIngress denies connections from others to the Pods.
	DenyAllIngress NetworkPolicyMode = "DenyAllIngress"
	// DenyAllEgress denies connections from the Pods to others.
	DenyAllEgress NetworkPolicyMode = "DenyAllEgress"
)

// NetworkPolicySpec restricts connections of the Pods by NetworkPolicies, one of the head and one
// of each worker group. Connections between the Pods of the cluster are always allowed.
type NetworkPolicySpec struct {
	// Mode defines which connections are denied unless a rule allows them. If empty, DenyAll.
	// +optional
	Mode NetworkPolicyMode `json:"mode,omitempty"`
	// Head has the rules of the head Pod.
	// +optional
	Head *NetworkPolicyRules `json:"head,omitempty"`
	// Worker has the rules of the groups without an entry in workerGroups.
	// +optional
	Worker *NetworkPolicyRules `json:"worker,omitempty"`
	// WorkerGroups have the rules of single groups, in place of those of worker.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	WorkerGroups []NetworkPolicyGroupRules `json:"workerGroups,omitempty"`
}

// NetworkPolicyRules allow connections beyond those between the Pods of the cluster.
type NetworkPolicyRules struct {
	// IngressRules allow connections to the Pods. Only in the modes DenyAll and DenyAllIngress.
	// +optional
	IngressRules []networkingv1.NetworkPolicyIngressRule `json:"ingressRules,omitempty"`
	// EgressRules allow connections from the Pods. Only in the modes DenyAll and DenyAllEgress. A
	// rule for UDP port 53 is needed to resolve names.
	// +optional
	EgressRules []networkingv1.NetworkPolicyEgressRule `json:"egressRules,omitempty"`
}

// NetworkPolicyGroupRules are the rules of one worker group.
type NetworkPolicyGroupRules struct {
	// GroupName is the name of the worker group.
	GroupName string `json:"groupName"`

	NetworkPolicyRules `json:",inline"`
}

// TLSOptions encrypt the connections between the Pods.
type TLSOptions struct {
	// Enabled enables encryption.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// HistoryServerOptions keep events and logs of ended clusters.
type HistoryServerOptions struct {
	// CollectorOptions are the settings of the container that collects them.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	CollectorOptions *runtime.RawExtension `json:"collectorOptions,omitempty"`
}
