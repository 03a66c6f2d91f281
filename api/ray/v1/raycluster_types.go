package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RayCluster is one head Pod and any number of worker Pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=k8s4r"
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=rayclusters,singular=raycluster,categories=all
// +kubebuilder:printcolumn:name="desired workers",type=integer,JSONPath=`.status.desiredWorkerReplicas`
// +kubebuilder:printcolumn:name="available workers",type=integer,JSONPath=`.status.availableWorkerReplicas`
// +kubebuilder:printcolumn:name="cpus",type=string,JSONPath=`.status.desiredCPU`
// +kubebuilder:printcolumn:name="memory",type=string,JSONPath=`.status.desiredMemory`
// +kubebuilder:printcolumn:name="gpus",type=string,JSONPath=`.status.desiredGPU`
// +kubebuilder:printcolumn:name="tpus",type=string,JSONPath=`.status.desiredTPU`,priority=1
// +kubebuilder:printcolumn:name="status",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="head pod IP",type=string,JSONPath=`.status.head.podIP`,priority=1
// +kubebuilder:printcolumn:name="head service IP",type=string,JSONPath=`.status.head.serviceIP`,priority=1
type RayCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user wants.
	Spec RayClusterSpec `json:"spec,omitempty"`
	// Status is what has come of it.
	// +optional
	Status RayClusterStatus `json:"status,omitempty"`
}

// RayClusterList is a list of RayClusters.
//
// +kubebuilder:object:root=true
type RayClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RayCluster `json:"items"`
}

// RayClusterSpec is which Pods there are, and what stands around them.
//
// +kubebuilder:validation:XValidation:rule="has(self.managedBy) == has(oldSelf.managedBy)",message="managedBy cannot be set or removed later; create another RayCluster"
type RayClusterSpec struct {
	// HeadGroupSpec is the head Pod.
	HeadGroupSpec HeadGroupSpec `json:"headGroupSpec"`
	// WorkerGroupSpecs are the groups of worker Pods. None: the head works alone.
	// +optional
	WorkerGroupSpecs []WorkerGroupSpec `json:"workerGroupSpecs,omitempty"`
	// RayVersion of the images, such as 2.53.0. It decides on probes and on what
	// the cluster can do. Empty: a version before all of that.
	// +optional
	RayVersion string `json:"rayVersion,omitempty"`
	// Suspend deletes all Pods and keeps the cluster. Only false resumes it.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// ManagedBy names who acts on the object. Not set: this controller. It cannot change.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="managedBy cannot change; create another RayCluster"
	// +kubebuilder:validation:XValidation:rule="self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue']",message="managedBy must be ray.io/kuberay-operator, which is this controller, or kueue.x-k8s.io/multikueue"
	ManagedBy *string `json:"managedBy,omitempty"`
	// EnableInTreeAutoscaling runs Ray's autoscaler beside the head. It then decides
	// on replicas.
	// +optional
	EnableInTreeAutoscaling *bool `json:"enableInTreeAutoscaling,omitempty"`
	// AutoscalerOptions are settings of the autoscaler.
	// +optional
	AutoscalerOptions *AutoscalerOptions `json:"autoscalerOptions,omitempty"`
	// HeadServiceAnnotations of the head's Service.
	// +optional
	HeadServiceAnnotations map[string]string `json:"headServiceAnnotations,omitempty"`
	// GcsFaultToleranceOptions keep what the head knows outside of it. Not set: it
	// dies with the head.
	// +optional
	GcsFaultToleranceOptions *GcsFaultToleranceOptions `json:"gcsFaultToleranceOptions,omitempty"`
	// UpgradeStrategy is what becomes of the Pods when the spec changes. Not set: None.
	// +optional
	UpgradeStrategy *RayClusterUpgradeStrategy `json:"upgradeStrategy,omitempty"`
	// AuthOptions say who may speak to the cluster.
	// +optional
	AuthOptions *AuthOptions `json:"authOptions,omitempty"`
	// NetworkPolicy shuts the Pods off from others. Refused: it is for later.
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`
	// TLSOptions encrypt what the Pods say to each other. Refused: they are for later.
	// +optional
	TLSOptions *TLSOptions `json:"tlsOptions,omitempty"`
	// HistoryServerOptions keep events and logs of ended clusters. Refused: they are
	// for later.
	// +optional
	HistoryServerOptions *HistoryServerOptions `json:"historyServerOptions,omitempty"`
}

// HeadGroupSpec is the head Pod, and how others reach it.
type HeadGroupSpec struct {
	// Template of the Pod. Its first container is Ray.
	Template corev1.PodTemplateSpec `json:"template"`
	// RayStartParams are the flags of ray start, without dashes.
	// +optional
	RayStartParams map[string]string `json:"rayStartParams,omitempty"`
	// HeadService is merged into the head's Service: name, labels, annotations,
	// ports, type and the rest of its spec.
	// +optional
	HeadService *corev1.Service `json:"headService,omitempty"`
	// ServiceType of the head's Service. Empty: a headless ClusterIP.
	// +optional
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`
	// EnableIngress makes an Ingress for the dashboard.
	// +optional
	EnableIngress *bool `json:"enableIngress,omitempty"`
	// IngressOptions of that Ingress.
	// +optional
	IngressOptions *IngressOptions `json:"ingressOptions,omitempty"`
	// Resources that Ray shall know of the Pod, whatever its container may use:
	// CPU, GPU, memory and names of the user's own.
	// +optional
	Resources map[string]string `json:"resources,omitempty"`
	// Labels of the Pod that are Ray's node labels as well.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// IngressOptions are what differs between Ingresses of dashboards.
type IngressOptions struct {
	// Host that the Ingress answers for. Empty: any.
	// +optional
	Host string `json:"host,omitempty"`
	// Path of the dashboard. Empty: /.
	// +optional
	Path string `json:"path,omitempty"`
	// PathType of the path. Not set: Prefix.
	// +optional
	// +kubebuilder:validation:Enum=Exact;Prefix;ImplementationSpecific
	PathType *string `json:"pathType,omitempty"`
	// TLS of the Ingress.
	// +optional
	TLS []IngressTLS `json:"tls,omitempty"`
}

// IngressTLS names the certificate of some hosts.
type IngressTLS struct {
	// Hosts that the certificate is for. Empty: any.
	// +optional
	Hosts []string `json:"hosts,omitempty"`
	// SecretName of the certificate. Empty: that of the ingress controller.
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// WorkerGroupSpec is a number of equal workers.
type WorkerGroupSpec struct {
	// GroupName tells the groups of a cluster apart.
	GroupName string `json:"groupName"`
	// Template of the Pods. Its first container is Ray.
	Template corev1.PodTemplateSpec `json:"template"`
	// Replicas wanted. It counts between minReplicas and maxReplicas. The autoscaler
	// writes it too.
	// +optional
	// +kubebuilder:default=0
	Replicas *int32 `json:"replicas,omitempty"`
	// MinReplicas that there are in any case.
	// +kubebuilder:default=0
	MinReplicas *int32 `json:"minReplicas"`
	// MaxReplicas that there are at the most.
	// +kubebuilder:default=2147483647
	MaxReplicas *int32 `json:"maxReplicas"`
	// NumOfHosts is how many Pods one replica is. They live and die together.
	// +optional
	// +kubebuilder:default=1
	NumOfHosts int32 `json:"numOfHosts,omitempty"`
	// Priority among the groups when the autoscaler can choose; the higher counts more.
	// +optional
	// +kubebuilder:default=0
	Priority *int32 `json:"priority,omitempty"`
	// IdleTimeoutSeconds after which the autoscaler removes an idle worker of this
	// group. Not set: that of autoscalerOptions.
	// +optional
	IdleTimeoutSeconds *int32 `json:"idleTimeoutSeconds,omitempty"`
	// Suspend deletes the Pods of this group and keeps the group.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// Resources that Ray shall know of a Pod, whatever its container may use.
	// +optional
	Resources map[string]string `json:"resources,omitempty"`
	// Labels of the Pods that are Ray's node labels as well.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// RayStartParams are the flags of ray start, without dashes.
	// +optional
	RayStartParams map[string]string `json:"rayStartParams,omitempty"`
	// ScaleStrategy says which Pods go. The autoscaler writes it.
	// +optional
	ScaleStrategy ScaleStrategy `json:"scaleStrategy,omitempty"`
}

// ScaleStrategy says which Pods go.
type ScaleStrategy struct {
	// WorkersToDelete are names of Pods of the group.
	// +optional
	WorkersToDelete []string `json:"workersToDelete,omitempty"`
}

// UpgradeType is what becomes of the Pods when the spec changes.
//
// +kubebuilder:validation:Enum=Recreate;None;RollingUpdate
type UpgradeType string

// The types of upgrades.
const (
	// UpgradeRecreate deletes all Pods at once.
	UpgradeRecreate UpgradeType = "Recreate"
	// UpgradeNone leaves the Pods as they are.
	UpgradeNone UpgradeType = "None"
	// UpgradeRollingUpdate replaces the workers a few at a time, and the head last.
	UpgradeRollingUpdate UpgradeType = "RollingUpdate"
)

// RayClusterUpgradeStrategy is what becomes of the Pods when the spec changes.
type RayClusterUpgradeStrategy struct {
	// Type of the upgrade. Not set: None.
	// +optional
	Type *UpgradeType `json:"type,omitempty"`
}
