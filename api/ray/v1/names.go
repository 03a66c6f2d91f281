package v1

// The labels of Pods and of the other objects of a cluster.
const (
	// LabelIsRayNode has the value yes on every Pod of a cluster.
	LabelIsRayNode = "ray.io/is-ray-node"
	// LabelCluster is the name of the cluster.
	LabelCluster = "ray.io/cluster"
	// LabelNodeType is one of the NodeTypes.
	LabelNodeType = "ray.io/node-type"
	// LabelGroup is the name of the group; HeadGroup for the head.
	LabelGroup = "ray.io/group"
	// LabelIdentifier is the name of the cluster and the node type.
	LabelIdentifier = "ray.io/identifier"
	// LabelServe is true on Pods of a RayService that serve requests. On the Service of Ray Serve it
	// names the Service.
	LabelServe = "ray.io/serve"
	// LabelReplicaName is the name of the replica, if replicas have several Pods.
	LabelReplicaName = "ray.io/worker-group-replica-name"
	// LabelReplicaIndex is the index of the replica in its group, from 0.
	LabelReplicaIndex = "ray.io/worker-group-replica-index"
	// LabelHostIndex is the index of the Pod in its replica, from 0.
	LabelHostIndex = "ray.io/replica-host-index"
	// LabelHeadlessService is the name of the cluster, on the headless Service of the workers.
	LabelHeadlessService = "ray.io/headless-worker-svc"
	// LabelAppName and LabelCreatedBy are recommended labels of Kubernetes.
	LabelAppName   = "app.kubernetes.io/name"
	LabelCreatedBy = "app.kubernetes.io/created-by"
	// LabelOriginatedFromKind is the kind of the object that created the cluster: RayService or
	// RayJob. Not set if a user created it. On the Service of Ray Serve it is RayCluster.
	LabelOriginatedFromKind = "ray.io/originated-from-crd"
	// LabelOriginatedFromName is the name of that object.
	LabelOriginatedFromName = "ray.io/originated-from-cr-name"
	// LabelSubmissionMode is how a RayJob submits its work to the cluster that it created.
	LabelSubmissionMode = "ray.io/job-submission-mode"
)

// The values of labels.
const (
	NodeTypeHead         = "head"
	NodeTypeWorker       = "worker"
	NodeTypeRedisCleanup = "redis-cleanup"
	// HeadGroup is the group of the head.
	HeadGroup = "headgroup"
	// AppName and CreatedBy have KubeRay's values, so that users' selectors keep working.
	AppName   = "kuberay"
	CreatedBy = "kuberay-operator"
	// SubmittedByJob is the value of LabelSubmissionMode if a Kubernetes Job submits the work.
	SubmittedByJob = "K8sJobMode"
)

// The annotations of clusters and of Pods.
const (
	// AnnotationFTEnabled is true if GCS fault tolerance is enabled. On a cluster it enables it,
	// without options.
	AnnotationFTEnabled = "ray.io/ft-enabled"
	// AnnotationStorageNamespace separates the keys of clusters in one Redis.
	AnnotationStorageNamespace = "ray.io/external-storage-namespace"
	// AnnotationFTDeletionTimeout is the number of seconds after which a deleted cluster no longer
	// waits for the Redis cleanup.
	AnnotationFTDeletionTimeout = "ray.io/gcs-ft-deletion-timeout"
	// AnnotationRecreateHash is the hash of the spec from which the head was created. Heads only.
	AnnotationRecreateHash = "ray.io/upgrade-strategy-recreate-hash"
	// AnnotationVersion is the version of the controller that created the head. Heads only.
	AnnotationVersion = "ray.io/kuberay-version"
	// AnnotationTemplateHash is the hash of the template from which a Pod was created, for rolling
	// updates. Not in KubeRay.
	AnnotationTemplateHash = "ray.k8s4r.io/template-hash"
	// AnnotationSharedHash is the hash of the settings that head and workers must share. If it
	// differs, a rolling update starts with the head. Heads only. Not in KubeRay.
	AnnotationSharedHash = "ray.k8s4r.io/shared-hash"
	// AnnotationRefilled is how often each group got new Pod names for replacements, as JSON such as
	// {"workers":2}. Not in KubeRay.
	AnnotationRefilled = "ray.k8s4r.io/refilled"
	// AnnotationOverwriteCommand, if true, keeps the command of the Ray container unchanged.
	AnnotationOverwriteCommand = "ray.io/overwrite-container-cmd"
	// AnnotationEnableServeService, if true, creates the Service of Ray Serve.
	AnnotationEnableServeService = "ray.io/enable-serve-service"
	// AnnotationDisableHeadRestart, if true, prevents a second head once the cluster was
	// provisioned.
	AnnotationDisableHeadRestart = "ray.io/disable-provisioned-head-restart"
	// AnnotationIngressClass names the class of the Ingress.
	AnnotationIngressClass = "kubernetes.io/ingress.class"
)

// FinalizerRedisCleanup keeps a deleted cluster until its keys are removed from Redis.
const FinalizerRedisCleanup = "ray.io/gcs-ft-redis-cleanup-finalizer"

// The values of spec.managedBy.
const (
	// ManagedByThis is this controller, which is also the default.
	ManagedByThis = "ray.io/kuberay-operator"
	// ManagedByMultiKueue is Kueue, which runs the cluster in another Kubernetes cluster.
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
	EnvGCSStorage         = "RAY_gcs_storage"
	EnvGCSStoragePath     = "RAY_gcs_storage_path"
	EnvRedisAddress       = "RAY_REDIS_ADDRESS"
	EnvRedisUsername      = "REDIS_USERNAME"
	EnvRedisPassword      = "REDIS_PASSWORD"
	EnvAutoscalerV2       = "RAY_enable_autoscaler_v2"
	EnvAuthMode           = "RAY_AUTH_MODE"
	EnvAuthToken          = "RAY_AUTH_TOKEN"
	EnvEnableK8sTokenAuth = "RAY_ENABLE_K8S_TOKEN_AUTH"

	// The number of attempts to connect to Redis, and the time between two.
	EnvRedisConnectRetries = "RAY_redis_db_connect_retries"
	EnvRedisConnectWait    = "RAY_redis_db_connect_wait_milliseconds"
)

// KeyAuthToken is the key of the token in its Secret.
const KeyAuthToken = "auth_token"
