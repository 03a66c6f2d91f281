package v1

// The labels of Pods and of what stands around them.
const (
	// LabelIsRayNode is yes on every Pod of a cluster.
	LabelIsRayNode = "ray.io/is-ray-node"
	// LabelCluster is the name of the cluster.
	LabelCluster = "ray.io/cluster"
	// LabelNodeType is one of the NodeTypes.
	LabelNodeType = "ray.io/node-type"
	// LabelGroup is the name of the group; of the head it is HeadGroup.
	LabelGroup = "ray.io/group"
	// LabelIdentifier is the cluster and the node type.
	LabelIdentifier = "ray.io/identifier"
	// LabelServe is true on the Pods of a RayService that serve.
	LabelServe = "ray.io/serve"
	// LabelReplicaName tells the replicas of a group apart, where one is several Pods.
	LabelReplicaName = "ray.io/worker-group-replica-name"
	// LabelReplicaIndex is the number of the replica in its group, from 0.
	LabelReplicaIndex = "ray.io/worker-group-replica-index"
	// LabelHostIndex is the number of the Pod in its replica, from 0.
	LabelHostIndex = "ray.io/replica-host-index"
	// LabelHeadlessService is on the Service of the workers: its own name.
	LabelHeadlessService = "ray.io/headless-worker-svc"
	// LabelAppName and LabelCreatedBy are the recommended ones of Kubernetes.
	LabelAppName   = "app.kubernetes.io/name"
	LabelCreatedBy = "app.kubernetes.io/created-by"
	// LabelOriginatedFromKind is the kind of the object that has made the cluster:
	// RayService or RayJob. Not set: the user has.
	LabelOriginatedFromKind = "ray.io/originated-from-crd"
	// LabelOriginatedFromName is the name of that object.
	LabelOriginatedFromName = "ray.io/originated-from-cr-name"
)

// The values of labels.
const (
	NodeTypeHead         = "head"
	NodeTypeWorker       = "worker"
	NodeTypeRedisCleanup = "redis-cleanup"
	// HeadGroup is the group of the head.
	HeadGroup = "headgroup"
	// AppName and CreatedBy are KubeRay's, for selectors that users have written.
	AppName   = "kuberay"
	CreatedBy = "kuberay-operator"
)

// The annotations of clusters and of Pods.
const (
	// AnnotationFTEnabled is true where GCS fault tolerance is on. On a cluster it
	// asks for it, without options.
	AnnotationFTEnabled = "ray.io/ft-enabled"
	// AnnotationStorageNamespace separates the keys of clusters in one Redis.
	AnnotationStorageNamespace = "ray.io/external-storage-namespace"
	// AnnotationFTDeletionTimeout is how many seconds a cluster waits for the
	// clean-up of Redis before it goes all the same.
	AnnotationFTDeletionTimeout = "ray.io/gcs-ft-deletion-timeout"
	// AnnotationRecreateHash is what the spec was when the head was made. Heads only.
	AnnotationRecreateHash = "ray.io/upgrade-strategy-recreate-hash"
	// AnnotationVersion is which controller has made the head. Heads only.
	AnnotationVersion = "ray.io/kuberay-version"
	// AnnotationTemplateHash is what the template was that a Pod was made of. Ours: a
	// rolling update goes by it.
	AnnotationTemplateHash = "ray.k8s4r.io/template-hash"
	// AnnotationSharedHash is what head and workers had to agree on when the head was
	// made. Heads only. Ours: a rolling update then begins with the head.
	AnnotationSharedHash = "ray.k8s4r.io/shared-hash"
	// AnnotationRefilled is how often each place of a cluster was filled anew, as JSON,
	// such as {"workers/3":2}. Ours: the names of the Pods follow from it.
	AnnotationRefilled = "ray.k8s4r.io/refilled"
	// AnnotationOverwriteCommand, when true, leaves the command of the Ray container alone.
	AnnotationOverwriteCommand = "ray.io/overwrite-container-cmd"
	// AnnotationEnableServeService, when true, makes the Service of Ray Serve.
	AnnotationEnableServeService = "ray.io/enable-serve-service"
	// AnnotationDisableHeadRestart, when true, makes no second head once the
	// cluster was provisioned.
	AnnotationDisableHeadRestart = "ray.io/disable-provisioned-head-restart"
	// AnnotationIngressClass names the class of the Ingress.
	AnnotationIngressClass = "kubernetes.io/ingress.class"
)

// FinalizerRedisCleanup keeps a cluster until its keys are gone from Redis.
const FinalizerRedisCleanup = "ray.io/gcs-ft-redis-cleanup-finalizer"

// The values of spec.managedBy.
const (
	// ManagedByThis is this controller. Not set means the same.
	ManagedByThis = "ray.io/kuberay-operator"
	// ManagedByMultiKueue is Kueue, in another cluster.
	ManagedByMultiKueue = "kueue.x-k8s.io/multikueue"
)

// The environment of containers.
const (
	EnvFQRayIP            = "FQ_RAY_IP"
	EnvRayIP              = "RAY_IP"
	EnvClusterName        = "RAY_CLUSTER_NAME"
	EnvClusterNamespace   = "RAY_CLUSTER_NAMESPACE"
	EnvCloudInstanceID    = "RAY_CLOUD_INSTANCE_ID"
	EnvNodeTypeName       = "RAY_NODE_TYPE_NAME"
	EnvHeadPodName        = "RAY_HEAD_POD_NAME"
	EnvStartCommand       = "KUBERAY_GEN_RAY_START_CMD"
	EnvAutoscalerCommand  = "KUBERAY_GEN_AUTOSCALER_START_CMD"
	EnvCRDVersion         = "KUBERAY_CRD_VER"
	EnvRayPort            = "RAY_PORT"
	EnvRayAddress         = "RAY_ADDRESS"
	EnvUsageInUse         = "RAY_USAGE_STATS_KUBERAY_IN_USE"
	EnvUsageTags          = "RAY_USAGE_STATS_EXTRA_TAGS"
	EnvDiskUsage          = "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE"
	EnvDeathInfoTimeout   = "RAY_timeout_ms_task_wait_for_death_info"
	EnvGCSRequestTimeout  = "RAY_gcs_server_request_timeout_seconds"
	EnvServeKVTimeout     = "RAY_SERVE_KV_TIMEOUT_S"
	EnvReconnectTimeout   = "RAY_gcs_rpc_server_reconnect_timeout_s"
	EnvStorageNamespace   = "RAY_external_storage_namespace"
	EnvRedisAddress       = "RAY_REDIS_ADDRESS"
	EnvRedisUsername      = "REDIS_USERNAME"
	EnvRedisPassword      = "REDIS_PASSWORD"
	EnvAutoscalerV2       = "RAY_enable_autoscaler_v2"
	EnvAuthMode           = "RAY_AUTH_MODE"
	EnvAuthToken          = "RAY_AUTH_TOKEN"
	EnvAuthTokenPath      = "RAY_AUTH_TOKEN_PATH"
	EnvEnableK8sTokenAuth = "RAY_ENABLE_K8S_TOKEN_AUTH"
)

// KeyAuthToken is the key of the token in its Secret.
const KeyAuthToken = "auth_token"
