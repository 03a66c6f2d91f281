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

// AutoscalerOptions are settings of Ray's autoscaler, a container of the head Pod.
type AutoscalerOptions struct {
	// Resources of the container. Not set: 500m CPU and 512Mi of memory.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Image of the container. Not set: that of the head.
	// +optional
	Image *string `json:"image,omitempty"`
	// ImagePullPolicy of the container. Not set: IfNotPresent.
	// +optional
	ImagePullPolicy *corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// SecurityContext of the container.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
	// IdleTimeoutSeconds after which an idle worker is removed. Not set: 60.
	// +optional
	IdleTimeoutSeconds *int32 `json:"idleTimeoutSeconds,omitempty"`
	// UpscalingMode is how fast workers are added. Not set: Default.
	// +optional
	// +kubebuilder:validation:Enum=Default;Aggressive;Conservative
	UpscalingMode *string `json:"upscalingMode,omitempty"`
	// Version of the autoscaler. Not set: what this version of Ray runs by itself.
	// +optional
	Version *AutoscalerVersion `json:"version,omitempty"`
	// Env of the container, after what it gets in any case.
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
	// EnvFrom of the container.
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// VolumeMounts of the container.
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// Command of the container in place of the usual one, which then stands in
	// KUBERAY_GEN_AUTOSCALER_START_CMD.
	// +optional
	Command []string `json:"command,omitempty"`
	// Args of the container in place of the usual ones.
	// +optional
	Args []string `json:"args,omitempty"`
}

// GcsFaultToleranceBackend is where the head keeps what it knows.
//
// +kubebuilder:validation:Enum=redis;rocksdb
type GcsFaultToleranceBackend string

// The backends.
const (
	BackendRedis   GcsFaultToleranceBackend = "redis"
	BackendRocksDB GcsFaultToleranceBackend = "rocksdb"
)

// GcsFaultToleranceOptions keep what the head knows outside of it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.backend) ? self.backend : 'redis') == (has(oldSelf.backend) ? oldSelf.backend : 'redis')",message="backend cannot change; create another RayCluster"
type GcsFaultToleranceOptions struct {
	// Backend that keeps it. Empty: redis. It cannot change.
	// +optional
	Backend GcsFaultToleranceBackend `json:"backend,omitempty"`
	// RedisAddress is host:port, or several of them.
	// +optional
	RedisAddress string `json:"redisAddress,omitempty"`
	// RedisUsername to log in with.
	// +optional
	RedisUsername *RedisCredential `json:"redisUsername,omitempty"`
	// RedisPassword to log in with.
	// +optional
	RedisPassword *RedisCredential `json:"redisPassword,omitempty"`
	// ExternalStorageNamespace separates this cluster's keys from others'. Empty:
	// the UID of the object.
	// +optional
	ExternalStorageNamespace string `json:"externalStorageNamespace,omitempty"`
	// Storage of RocksDB. Refused: it is for later.
	// +optional
	Storage *GcsStorage `json:"storage,omitempty"`
}

// RedisCredential is a value, or where it stands.
type RedisCredential struct {
	// Value in plain text.
	// +optional
	Value string `json:"value,omitempty"`
	// ValueFrom a Secret, for example.
	// +optional
	ValueFrom *corev1.EnvVarSource `json:"valueFrom,omitempty"`
}

// GcsStorage is the volume of RocksDB.
type GcsStorage struct {
	// ClaimName of a claim that exists. Empty: one is made.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Size of the claim that is made.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClassName of the claim that is made.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
	// AccessModes of the claim that is made.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// SubPath in the volume.
	// +optional
	SubPath string `json:"subPath,omitempty"`
	// DeletionPolicy of the claim that is made.
	// +optional
	// +kubebuilder:validation:Enum=DeleteWithCluster;Retain
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
}

// AuthMode is who may speak to the cluster.
//
// +kubebuilder:validation:Enum=disabled;token
type AuthMode string

// The modes.
const (
	// AuthDisabled lets everybody in.
	AuthDisabled AuthMode = "disabled"
	// AuthToken lets in who bears the token.
	AuthToken AuthMode = "token"
)

// AuthOptions say who may speak to the cluster.
type AuthOptions struct {
	// Mode of authentication. Empty: none is asked for, but the token is made.
	// +optional
	Mode AuthMode `json:"mode,omitempty"`
	// SecretName of a Secret with the key auth_token. Empty: one is made.
	// +optional
	SecretName *string `json:"secretName,omitempty"`
	// EnableK8sTokenAuth lets in who bears a token of Kubernetes that may.
	// +optional
	EnableK8sTokenAuth *bool `json:"enableK8sTokenAuth,omitempty"`
}

// NetworkPolicySpec shuts the Pods off from others.
type NetworkPolicySpec struct {
	// Mode is what is shut off. Empty: DenyAll.
	// +optional
	// +kubebuilder:validation:Enum=DenyAll;DenyAllIngress;DenyAllEgress
	Mode string `json:"mode,omitempty"`
	// Head has rules of the head.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Head *runtime.RawExtension `json:"head,omitempty"`
	// Worker has rules of all workers.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Worker *runtime.RawExtension `json:"worker,omitempty"`
	// WorkerGroups have rules of groups of workers.
	// +optional
	// +kubebuilder:validation:items:XPreserveUnknownFields
	WorkerGroups []runtime.RawExtension `json:"workerGroups,omitempty"`
}

// TLSOptions encrypt what the Pods say to each other.
type TLSOptions struct {
	// Enabled turns it on.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// HistoryServerOptions keep events and logs of ended clusters.
type HistoryServerOptions struct {
	// CollectorOptions of the container that collects them.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	CollectorOptions *runtime.RawExtension `json:"collectorOptions,omitempty"`
}
