package v1

import (
	corev1 "k8s.io/api/core/v1"
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
	// Backend that stores the state. If empty, redis. It cannot change. rocksdb is not supported
	// yet.
	// +optional
	Backend GcsFaultToleranceBackend `json:"backend,omitempty"`
	// RedisAddress is the address of Redis as host:port, or a list of addresses.
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
	// Storage of the backend rocksdb. Not supported yet; must not be set.
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

// GcsStorage is the volume of RocksDB.
type GcsStorage struct {
	// ClaimName is the name of an existing claim. If empty, a claim is created.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Size of the created claim.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClassName of the created claim.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
	// AccessModes of the created claim.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// SubPath in the volume.
	// +optional
	SubPath string `json:"subPath,omitempty"`
	// DeletionPolicy of the created claim.
	// +optional
	// +kubebuilder:validation:Enum=DeleteWithCluster;Retain
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
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

// NetworkPolicySpec restricts connections to the Pods.
type NetworkPolicySpec struct {
	// Mode defines which connections are denied. If empty, DenyAll.
	// +optional
	// +kubebuilder:validation:Enum=DenyAll;DenyAllIngress;DenyAllEgress
	Mode string `json:"mode,omitempty"`
	// Head has the rules of the head.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Head *runtime.RawExtension `json:"head,omitempty"`
	// Worker has the rules of all workers.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Worker *runtime.RawExtension `json:"worker,omitempty"`
	// WorkerGroups have the rules of groups of workers.
	// +optional
	// +kubebuilder:validation:items:XPreserveUnknownFields
	WorkerGroups []runtime.RawExtension `json:"workerGroups,omitempty"`
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
