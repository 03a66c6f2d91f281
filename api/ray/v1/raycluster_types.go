package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The limits of a cluster. The schema, the admission policies and the controller check them.
const (
	// MaxGroupReplicas is the highest number of replicas of a worker group.
	MaxGroupReplicas = 100_000
	// MaxHosts is the highest number of Pods of a replica.
	MaxHosts = 4096
	// MaxWorkerPods is the highest number of worker Pods of a cluster.
	MaxWorkerPods = 1_000_000
	// MaxGroups is the highest number of worker groups.
	MaxGroups = 1000
)

// RayCluster is a Ray cluster: a head Pod and groups of worker Pods.
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

	// Spec defines the Pods of the cluster.
	Spec RayClusterSpec `json:"spec,omitempty"`
	// Status is the observed state of the cluster.
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

// RayClusterSpec defines the Pods of a cluster and their Services.
//
// +kubebuilder:validation:XValidation:rule="(has(self.managedBy) ? self.managedBy : 'ray.io/kuberay-operator') == (has(oldSelf.managedBy) ? oldSelf.managedBy : 'ray.io/kuberay-operator')",message="managedBy cannot change; create another RayCluster. Only ray.io/kuberay-operator, the default, can be added or removed"
type RayClusterSpec struct {
	// HeadGroupSpec defines the head Pod.
	HeadGroupSpec HeadGroupSpec `json:"headGroupSpec"`
	// WorkerGroupSpecs define the groups of worker Pods. If empty, there is only the head.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	WorkerGroupSpecs []WorkerGroupSpec `json:"workerGroupSpecs,omitempty"`
	// RayVersion is the version of Ray in the images, such as 2.53.0. It selects the probes and
	// the supported features. If empty, features that need a minimum version are not supported.
	// +optional
	RayVersion string `json:"rayVersion,omitempty"`
	// Suspend deletes all Pods and keeps the cluster. Setting it to false resumes the cluster;
	// removing it does not.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// ManagedBy is the controller that manages the cluster. If not set, this controller, which is
	// ray.io/kuberay-operator. It cannot change to another controller.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue']",message="managedBy must be ray.io/kuberay-operator (this controller) or kueue.x-k8s.io/multikueue"
	ManagedBy *string `json:"managedBy,omitempty"`
	// EnableInTreeAutoscaling runs Ray's autoscaler in the head Pod. The autoscaler then sets the
	// replicas of the groups.
	// +optional
	EnableInTreeAutoscaling *bool `json:"enableInTreeAutoscaling,omitempty"`
	// AutoscalerOptions are the settings of the autoscaler.
	// +optional
	AutoscalerOptions *AutoscalerOptions `json:"autoscalerOptions,omitempty"`
	// HeadServiceAnnotations are the annotations of the head's Service.
	// +optional
	HeadServiceAnnotations map[string]string `json:"headServiceAnnotations,omitempty"`
	// GcsFaultToleranceOptions store the state of the head outside its Pod. If not set, the state
	// is lost when the head Pod ends.
	// +optional
	GcsFaultToleranceOptions *GcsFaultToleranceOptions `json:"gcsFaultToleranceOptions,omitempty"`
	// UpgradeStrategy defines what happens to the Pods when the spec changes. If not set, None.
	// +optional
	UpgradeStrategy *RayClusterUpgradeStrategy `json:"upgradeStrategy,omitempty"`
	// AuthOptions define how clients authenticate. If not set, they do not.
	// +optional
	AuthOptions *AuthOptions `json:"authOptions,omitempty"`
	// NetworkPolicy restricts connections of the Pods. If not set, no NetworkPolicies are created.
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`
	// TLSOptions encrypt the connections between the Pods. Not supported yet; must not be enabled.
	// +optional
	TLSOptions *TLSOptions `json:"tlsOptions,omitempty"`
	// HistoryServerOptions keep events and logs of ended clusters. Not supported yet; must not be
	// set.
	// +optional
	HistoryServerOptions *HistoryServerOptions `json:"historyServerOptions,omitempty"`
}

// HeadGroupSpec defines the head Pod, its Service and its Ingress.
type HeadGroupSpec struct {
	// Template of the Pod. The first container runs Ray.
	Template corev1.PodTemplateSpec `json:"template"`
	// RayStartParams are flags of ray start, without the leading dashes.
	// +optional
	RayStartParams map[string]string `json:"rayStartParams,omitempty"`
	// HeadService is merged into the head's Service: its name, labels, annotations and spec.
	// +optional
	HeadService *corev1.Service `json:"headService,omitempty"`
	// ServiceType is the type of the head's Service. If empty, ClusterIP, without a cluster IP.
	// +optional
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`
	// EnableIngress creates an Ingress for the dashboard.
	// +optional
	EnableIngress *bool `json:"enableIngress,omitempty"`
	// IngressOptions are the settings of that Ingress.
	// +optional
	IngressOptions *IngressOptions `json:"ingressOptions,omitempty"`
	// Resources that the Pod offers to Ray: CPU, GPU, memory and custom names. They take
	// precedence over the limits of the container.
	// +optional
	Resources map[string]string `json:"resources,omitempty"`
	// Labels of the Pod. They are also Ray's node labels.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// IngressOptions are the settings of the Ingress for the dashboard.
type IngressOptions struct {
	// Host of the Ingress. If empty, any.
	// +optional
	Host string `json:"host,omitempty"`
	// Path of the dashboard. If empty, /.
	// +optional
	Path string `json:"path,omitempty"`
	// PathType of the path. If not set, Prefix.
	// +optional
	// +kubebuilder:validation:Enum=Exact;Prefix;ImplementationSpecific
	PathType *string `json:"pathType,omitempty"`
	// TLS of the Ingress.
	// +optional
	TLS []IngressTLS `json:"tls,omitempty"`
}

// IngressTLS is a certificate and its hosts.
type IngressTLS struct {
	// Hosts of the certificate. If empty, any.
	// +optional
	Hosts []string `json:"hosts,omitempty"`
	// SecretName is the name of the Secret with the certificate. If empty, the certificate of the
	// ingress controller is used.
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// WorkerGroupSpec is a group of equal workers.
type WorkerGroupSpec struct {
	// GroupName is the name of the group, unique in the cluster.
	GroupName string `json:"groupName"`
	// Template of the Pods. The first container runs Ray.
	Template corev1.PodTemplateSpec `json:"template"`
	// Replicas is the desired number of replicas, limited to the range from minReplicas to
	// maxReplicas. The autoscaler writes it, too.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Maximum=100000
	Replicas *int32 `json:"replicas,omitempty"`
	// MinReplicas is the lowest number of replicas.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Maximum=100000
	MinReplicas *int32 `json:"minReplicas"`
	// MaxReplicas is the highest number of replicas.
	// +kubebuilder:default=2147483647
	// +kubebuilder:validation:Maximum=2147483647
	MaxReplicas *int32 `json:"maxReplicas"`
	// NumOfHosts is the number of Pods per replica. They are created and deleted together.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Maximum=4096
	NumOfHosts int32 `json:"numOfHosts,omitempty"`
	// Priority of the group when the autoscaler chooses among groups. Higher values are preferred.
	// Requires autoscaler v2.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Priority *int32 `json:"priority,omitempty"`
	// IdleTimeoutSeconds is the number of seconds after which the autoscaler removes an idle
	// worker of the group. If not set, that of autoscalerOptions. Requires autoscaler v2.
	// +optional
	// +kubebuilder:validation:Maximum=315360000
	IdleTimeoutSeconds *int32 `json:"idleTimeoutSeconds,omitempty"`
	// Suspend deletes the Pods of this group and keeps the group.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// Resources that each Pod offers to Ray. They take precedence over the limits of
	// the container.
	// +optional
	Resources map[string]string `json:"resources,omitempty"`
	// Labels of the Pods. They are also Ray's node labels.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// RayStartParams are flags of ray start, without the leading dashes.
	// +optional
	RayStartParams map[string]string `json:"rayStartParams,omitempty"`
	// ScaleStrategy selects the Pods to delete. The autoscaler writes it.
	// +optional
	ScaleStrategy ScaleStrategy `json:"scaleStrategy,omitempty"`
}

// ScaleStrategy selects the Pods to delete.
type ScaleStrategy struct {
	// WorkersToDelete are the names of Pods of the group to delete.
	// +optional
	WorkersToDelete []string `json:"workersToDelete,omitempty"`
}

// UpgradeType defines what happens to the Pods when the spec changes.
//
// +kubebuilder:validation:Enum=Recreate;None;RollingUpdate
type UpgradeType string

// The types of upgrades.
const (
	// UpgradeRecreate deletes all Pods at once.
	UpgradeRecreate UpgradeType = "Recreate"
	// UpgradeNone keeps the Pods unchanged.
	UpgradeNone UpgradeType = "None"
	// UpgradeRollingUpdate replaces the workers a few at a time, and the head last.
	UpgradeRollingUpdate UpgradeType = "RollingUpdate"
)

// RayClusterUpgradeStrategy defines what happens to the Pods when the spec changes.
type RayClusterUpgradeStrategy struct {
	// Type of the upgrade. Recreate deletes all Pods at once. RollingUpdate replaces the workers a
	// few at a time, and then the head. None keeps the Pods unchanged. If not set, None.
	// +optional
	Type *UpgradeType `json:"type,omitempty"`
}
