package build

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// cluster returns a cluster with a head and one worker group.
func cluster(change ...func(*rayv1.RayCluster)) *rayv1.RayCluster {
	c := &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "u-1"}}
	c.Spec.RayVersion = "2.52.0"
	c.Spec.HeadGroupSpec.Template.Spec.Containers = []corev1.Container{{Name: "ray-head", Image: "ray"}}
	one, most := int32(1), int32(3)
	g := rayv1.WorkerGroupSpec{GroupName: "g", Replicas: &one, MinReplicas: new(int32), MaxReplicas: &most, NumOfHosts: 1}
	g.Template.Spec.Containers = []corev1.Container{{Name: "ray-worker", Image: "ray"}}
	c.Spec.WorkerGroupSpecs = []rayv1.WorkerGroupSpec{g}
	for _, f := range change {
		f(c)
	}
	return c
}

func group(c *rayv1.RayCluster) *rayv1.WorkerGroupSpec { return &c.Spec.WorkerGroupSpecs[0] }

func headPod(c *rayv1.RayCluster) *corev1.Pod {
	s := DefaultSettings()
	return HeadPod(&s, c)
}

func workerPod(c *rayv1.RayCluster) *corev1.Pod {
	s := DefaultSettings()
	return WorkerPod(&s, c, group(c), Replica{})
}

// started returns the last argument of the Ray container.
func started(p *corev1.Pod) string { return p.Spec.Containers[0].Args[0] }

// flags returns the flags of a start command in order.
func flags(p *corev1.Pod) []string {
	_, start, _ := strings.Cut(started(p), "ray start ")
	return strings.Fields(start)
}

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

const ulimit = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "

func TestPods_HaveStartCommand(t *testing.T) {
	limits := func(c *rayv1.RayCluster) {
		c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Resources.Limits = list("cpu", "2", "memory", "1Gi", "nvidia.com/gpu", "1")
	}
	for _, row := range []struct{ name, got, want string }{
		{"5.07 exact head start command", started(headPod(cluster(limits))), ulimit +
			"ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  --memory=1073741824  --metrics-export-port=8080  --num-cpus=2  --num-gpus=1 "},
		{"5.08 exact worker start command", started(workerPod(cluster())), ulimit +
			"ray start  --address=c-head-svc.ns.svc.cluster.local:6379  --block  --dashboard-agent-listen-port=52365  --metrics-export-port=8080 "},
		{"5.08 the head listens on another port", flags(workerPod(cluster(func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"port": "6380"}
		})))[0], "--address=c-head-svc.ns.svc.cluster.local:6380"},
		{"5.08 the head's Service has another name", flags(workerPod(cluster(func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.HeadService = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}}
		})))[0], "--address=front.ns.svc.cluster.local:6379"},
		{"5.12 the user's command comes first", started(headPod(cluster(func(c *rayv1.RayCluster) {
			ray := &c.Spec.HeadGroupSpec.Template.Spec.Containers[0]
			ray.Command, ray.Args = []string{"echo"}, []string{"a b"}
		}))), " echo  a b  && " + ulimit + "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  --metrics-export-port=8080 "},
		{"5.12 ray start in the user's command", started(headPod(cluster(func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Args = []string{"ray start --head"}
		}))), "ray start --head"},
		{"5.13 the user's command alone", started(workerPod(cluster(func(c *rayv1.RayCluster) {
			c.Annotations = map[string]string{rayv1.AnnotationOverwriteCommand: "true"}
			group(c).Template.Spec.Containers[0].Args = []string{"mine"}
		}))), "mine"},
	} {
		if row.got != row.want {
			t.Errorf("%s:\n got %q\nwant %q", row.name, row.got, row.want)
		}
	}
}

// TestFlags covers the resources that are passed to Ray, and the syntax of flags.
func TestFlags(t *testing.T) {
	for _, row := range []struct {
		name              string
		limits, requests  corev1.ResourceList
		params, resources map[string]string
		want              []string // each is a flag; with a leading dash: is absent
	}{
		{name: "5.09 CPUs are rounded up", limits: list("cpu", "1500m"), want: []string{"--num-cpus=2"}},
		{name: "5.09 a request counts where no limit is", requests: list("cpu", "3", "memory", "1Gi"), want: []string{"--num-cpus=3", "-memory"}},
		{name: "5.09 a limit counts more than a request", limits: list("cpu", "4"), requests: list("cpu", "3"), want: []string{"--num-cpus=4"}},
		{name: "5.09 memory is that of the limit", limits: list("memory", "1Gi"), requests: list("memory", "512Mi"), want: []string{"--memory=1073741824"}},
		{name: "5.09 nothing is known", want: []string{"-num-cpus", "-memory", "-num-gpus", "-resources"}},
		{name: "5.09 a flag of the user's counts more", limits: list("cpu", "4", "memory", "1Gi"), params: map[string]string{"num-cpus": "0", "memory": "5"}, want: []string{"--num-cpus=0", "--memory=5"}},
		{name: "5.10 a GPU of any make", limits: list("amd.com/gpu", "2"), want: []string{"--num-gpus=2"}},
		{name: "5.10 the first of several makes", limits: list("nvidia.com/gpu", "2", "amd.com/gpu", "1"), want: []string{"--num-gpus=1"}},
		{name: "5.10 none of a make is no GPU", limits: list("nvidia.com/gpu", "2", "amd.com/gpu", "0"), want: []string{"--num-gpus=2"}},
		{name: "5.10 a slice of one", limits: list("nvidia.com/mig-1g.5gb", "3"), want: []string{"--num-gpus=3"}},
		{name: "5.10 a GPU that is only requested", requests: list("nvidia.com/gpu", "2"), want: []string{"-num-gpus"}},
		{name: "5.10 a name that only looks like one", limits: list("example.com/gpu-memory", "2"), want: []string{"-num-gpus"}},
		{name: "5.10 TPUs", limits: list("google.com/tpu", "4"), want: []string{`--resources='{"TPU":4}'`}},
		{name: "5.10 neuron cores", limits: list("aws.amazon.com/neuroncore", "2"), want: []string{`--resources='{"neuron_cores":2}'`}},
		{name: "5.10 the first of two accelerators", limits: list("aws.amazon.com/neuroncore", "2", "google.com/tpu", "4"), want: []string{`--resources='{"neuron_cores":2}'`}},
		{name: "5.10 beside the user's", limits: list("google.com/tpu", "4"), params: map[string]string{"resources": `'{"arm":1}'`}, want: []string{`--resources='{"TPU":4,"arm":1}'`}},
		{name: "5.10 in quotes of the other sort", limits: list("google.com/tpu", "4"), params: map[string]string{"resources": `"{\"arm\":1}"`}, want: []string{`--resources='{"TPU":4,"arm":1}'`}},
		{name: "5.10 the user's word on it counts more", limits: list("google.com/tpu", "4"), params: map[string]string{"resources": `'{"TPU":1}'`}, want: []string{`--resources='{"TPU":1}'`}},
		{name: "5.10 what cannot be read stays", limits: list("google.com/tpu", "4"), params: map[string]string{"resources": `$R`}, want: []string{"--resources=$R"}},
		{name: "5.11 the group's resources", limits: list("cpu", "8", "memory", "1Gi"), resources: map[string]string{"CPU": "1500m", "memory": "2Gi", "gpu": "1", "arm": "500m", "leg": "2"},
			want: []string{"--num-cpus=2", "--memory=2147483648", "--num-gpus=1", `--resources='{"arm":0.5,"leg":2}'`}},
		{name: "a flag that is true has no value", params: map[string]string{"disable-usage-stats": "True"}, want: []string{"--disable-usage-stats"}},
		{name: "a flag that is false is none", params: map[string]string{"verbose": "false"}, want: []string{"-verbose"}},
		{name: "but for three", params: map[string]string{"log-color": "false", "include-dashboard": "false", "include-log-monitor": "false"},
			want: []string{"--log-color=false", "--include-dashboard=false", "--include-log-monitor=false"}},
		{name: "which take true as well", params: map[string]string{"include-dashboard": "true"}, want: []string{"--include-dashboard=true"}},
		{name: "Ray stays in the foreground", params: map[string]string{"block": "false"}, want: []string{"--block"}},
	} {
		c := cluster(func(c *rayv1.RayCluster) {
			g := group(c)
			g.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: row.limits, Requests: row.requests}
			g.RayStartParams, g.Resources = row.params, row.resources
		})
		got := flags(workerPod(c))
		for _, want := range row.want {
			none, absent := strings.CutPrefix(want, "-")
			absent = absent && !strings.HasPrefix(none, "-")
			if absent && slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "--"+none) }) || !absent && !slices.Contains(got, want) {
				t.Errorf("%s: got %v, want %s", row.name, got, want)
			}
		}
	}
	c := cluster(func(c *rayv1.RayCluster) { group(c).Labels = map[string]string{"b": "2", "a": "1"} })
	if p := workerPod(c); !slices.Contains(flags(p), "--labels=a=1,b=2") || p.Labels["a"] != "1" {
		t.Errorf("5.11 labels: %v, %v", flags(p), p.Labels)
	}
}

// envNames returns the names of a container's variables.
func envNames(c corev1.Container) []string {
	var all []string
	for _, v := range c.Env {
		all = append(all, v.Name)
	}
	return all
}

func envValue(c corev1.Container, name string) (value string, times int) {
	for _, v := range c.Env {
		if v.Name == name {
			value, times = v.Value, times+1
		}
	}
	return value, times
}

func TestEnvironment(t *testing.T) {
	user := []corev1.EnvVar{{Name: "MINE", Value: "1"}}
	serve := func(c *rayv1.RayCluster) {
		c.Labels = map[string]string{rayv1.LabelOriginatedFromKind: "RayService"}
		c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Env, group(c).Template.Spec.Containers[0].Env = user, user
	}
	head := strings.Join(envNames(headPod(cluster(serve)).Spec.Containers[0]), " ")
	if want := "MINE RAY_CLUSTER_NAME RAY_CLUSTER_NAMESPACE RAY_CLOUD_INSTANCE_ID RAY_NODE_TYPE_NAME KUBERAY_GEN_RAY_START_CMD RAY_PORT " +
		"RAY_timeout_ms_task_wait_for_death_info RAY_gcs_server_request_timeout_seconds RAY_SERVE_KV_TIMEOUT_S RAY_ADDRESS " +
		"RAY_USAGE_STATS_KUBERAY_IN_USE RAY_USAGE_STATS_EXTRA_TAGS RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE"; head != want {
		t.Errorf("5.14 head:\n got %s\nwant %s", head, want)
	}
	worker := strings.Join(envNames(workerPod(cluster(serve)).Spec.Containers[0]), " ")
	if want := "MINE FQ_RAY_IP RAY_IP RAY_CLUSTER_NAME RAY_CLUSTER_NAMESPACE RAY_CLOUD_INSTANCE_ID RAY_NODE_TYPE_NAME KUBERAY_GEN_RAY_START_CMD RAY_PORT " +
		"RAY_timeout_ms_task_wait_for_death_info RAY_gcs_server_request_timeout_seconds RAY_SERVE_KV_TIMEOUT_S RAY_ADDRESS " +
		"RAY_USAGE_STATS_KUBERAY_IN_USE RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE"; worker != want {
		t.Errorf("5.14 worker:\n got %s\nwant %s", worker, want)
	}
	for name, only := range map[string]bool{
		"DEFAULT": true, "RAY_PORT": true, "RAY_ADDRESS": true, "RAY_USAGE_STATS_KUBERAY_IN_USE": true, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": true,
		"RAY_gcs_rpc_server_reconnect_timeout_s": true, "FQ_RAY_IP": false, "RAY_IP": false, "KUBERAY_GEN_RAY_START_CMD": false,
	} {
		s := DefaultSettings()
		s.Env = []corev1.EnvVar{{Name: "DEFAULT", Value: "theirs"}}
		c := cluster(func(c *rayv1.RayCluster) {
			c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "r:1"}
			group(c).Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: name, Value: "mine"}}
		})
		last, times := envValue(WorkerPod(&s, c, group(c), Replica{}).Spec.Containers[0], name)
		if only != (last == "mine") || only != (times == 1) {
			t.Errorf("5.14 %s: %q, %d times", name, last, times)
		}
	}
	c := cluster(func(c *rayv1.RayCluster) { c.Annotations = map[string]string{rayv1.AnnotationOverwriteCommand: "true"} })
	if v, _ := envValue(headPod(c).Spec.Containers[0], rayv1.EnvStartCommand); !strings.HasPrefix(v, "ray start --head ") {
		t.Errorf("5.13 %s=%q", rayv1.EnvStartCommand, v)
	}
}

// The variables of fault tolerance and authentication precede those of every Pod. Workers learn the
// version of the autoscaler from the head.
func TestEnvironment_Features(t *testing.T) {
	c := cluster(func(c *rayv1.RayCluster) {
		yes, v2 := true, rayv1.AutoscalerV2
		c.Spec.EnableInTreeAutoscaling, c.Spec.AutoscalerOptions = &yes, &rayv1.AutoscalerOptions{Version: &v2}
		c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "r:1", RedisPassword: &rayv1.RedisCredential{Value: "p"}}
		c.Spec.AuthOptions = &rayv1.AuthOptions{Mode: rayv1.AuthToken, EnableK8sTokenAuth: &yes}
	})
	head := strings.Join(envNames(headPod(c).Spec.Containers[0]), " ")
	if want := "RAY_enable_autoscaler_v2 RAY_external_storage_namespace RAY_REDIS_ADDRESS REDIS_PASSWORD RAY_AUTH_MODE RAY_ENABLE_K8S_TOKEN_AUTH RAY_CLUSTER_NAME "; !strings.HasPrefix(head, want) {
		t.Errorf("head:\n got %s\nwant %s", head, want)
	}
	worker := strings.Join(envNames(workerPod(c).Spec.Containers[0]), " ")
	if want := "RAY_gcs_rpc_server_reconnect_timeout_s RAY_AUTH_MODE RAY_ENABLE_K8S_TOKEN_AUTH FQ_RAY_IP RAY_IP "; !strings.HasPrefix(worker, want) {
		t.Errorf("worker:\n got %s\nwant %s", worker, want)
	}
	if strings.Contains(head+worker, "RAY_AUTH_TOKEN_PATH") {
		t.Error("RAY_AUTH_TOKEN_PATH is set")
	}
}

// The controller's address of the head wins in init containers. The one that waits for the head gets
// the variables of the Ray container, but not those of ConfigMaps and Secrets.
func TestInitContainers_Environment(t *testing.T) {
	c := cluster(func(c *rayv1.RayCluster) {
		spec := &group(c).Template.Spec
		spec.InitContainers = []corev1.Container{{Name: "own", Env: []corev1.EnvVar{{Name: rayv1.EnvRayIP, Value: "mine"}}}}
		spec.Containers[0].Env = []corev1.EnvVar{{Name: "MINE", Value: "1"}}
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
	})
	init := workerPod(c).Spec.InitContainers
	if ip, _ := envValue(init[0], rayv1.EnvRayIP); ip != "c-head-svc" {
		t.Errorf("RAY_IP is %q", ip)
	}
	if fq, _ := envValue(init[0], rayv1.EnvFQRayIP); fq != "c-head-svc.ns.svc.cluster.local" {
		t.Errorf("FQ_RAY_IP is %q", fq)
	}
	if wait := findContainer(init, waitName); len(wait.EnvFrom) != 0 || wait.Env[0].Name != "MINE" {
		t.Errorf("wait-gcs-ready has %v and envFrom %v", envNames(*wait), wait.EnvFrom)
	}
}

func TestServeProbe_WaitsForSecondRequest(t *testing.T) {
	c := cluster(func(c *rayv1.RayCluster) { c.Labels = map[string]string{rayv1.LabelOriginatedFromKind: "RayService"} })
	got := workerPod(c).Spec.Containers[0].ReadinessProbe.Exec.Command[2]
	want := "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success && wget --tries 1 -T 10 -q -O- http://localhost:8000/-/healthz | grep success"
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// The labels by which users and monitors find the objects of a cluster.
func TestServices_Labels(t *testing.T) {
	yes, s := true, DefaultSettings()
	c := cluster(func(c *rayv1.RayCluster) {
		c.Annotations = map[string]string{rayv1.AnnotationEnableServeService: "true"}
		c.Spec.HeadGroupSpec.EnableIngress = &yes
		group(c).NumOfHosts = 2
	})
	serve := ServeService(&s, c)
	for _, p := range serve.Spec.Ports {
		if p.AppProtocol != nil {
			t.Errorf("port %s has appProtocol %s", p.Name, *p.AppProtocol)
		}
	}
	for _, row := range []struct {
		object metav1.Object
		want   map[string]string
	}{
		{serve, map[string]string{rayv1.LabelServe: "c-serve", rayv1.LabelOriginatedFromKind: "RayCluster", rayv1.LabelOriginatedFromName: "c"}},
		{HeadlessService(&s, c), map[string]string{rayv1.LabelHeadlessService: "c"}},
		{HeadIngress(c), map[string]string{rayv1.LabelIdentifier: "c-head"}},
	} {
		for k, v := range row.want {
			if got := row.object.GetLabels()[k]; got != v {
				t.Errorf("%s: label %s is %q, want %q", row.object.GetName(), k, got, v)
			}
		}
	}
}

func TestNames(t *testing.T) {
	s := DefaultSettings()
	long := cluster(func(c *rayv1.RayCluster) {
		c.Name = strings.Repeat("0", 2) + strings.Repeat("a", 45) + "-BCDEF"
		group(c).GroupName = "Group"
	})
	named := s
	named.DeterministicHeadName = true
	for _, row := range []struct{ name, got, want string }{
		{"5.05 generateName of a head", headPod(cluster()).GenerateName, "c-head-"},
		{"5.05 and no name", headPod(cluster()).Name, ""},
		{"5.05 a long one is cut and in lower case", headPod(long).GenerateName, "00" + strings.Repeat("a", 45) + "-bc-head-"},
		{"5.05 deterministic name", HeadPod(&named, cluster()).Name, "c-head"},
		{"5.05 and no generateName", HeadPod(&named, cluster()).GenerateName, ""},
		{"generateName of a worker", workerPod(cluster()).GenerateName, "c-g-worker-"},
		{"a long one", workerPod(long).GenerateName, "00" + strings.Repeat("a", 45) + "-bc-worker-"},
		{"names of what is around keep the end, a letter first", checkName("12" + strings.Repeat("x", 49)), "r" + strings.Repeat("x", 49)},
		{"a replica", ReplicaName(group(cluster()), "abcde"), "g-abcde"},
		{"a replica of a group with a long name", ReplicaName(&rayv1.WorkerGroupSpec{GroupName: strings.Repeat("g", 63)}, "abcde"), strings.Repeat("g", 57) + "-abcde"},
		{"a group that is cut behind a dash", ReplicaName(&rayv1.WorkerGroupSpec{GroupName: strings.Repeat("g", 56) + "-gg"}, "abcde"), strings.Repeat("g", 56) + "-abcde"},
		{"a group that just fits", ReplicaName(&rayv1.WorkerGroupSpec{GroupName: strings.Repeat("g", 57)}, "abcde"), strings.Repeat("g", 57) + "-abcde"},
		{"a dash is no letter", checkName("-a"), "ra"},
		{"a name that fits", checkName("abc"), "abc"},
		{"the Job that cleans up", RedisCleanupJobName(cluster()), "c-redis-cleanup"},
	} {
		if row.got != row.want {
			t.Errorf("%s: got %q, want %q", row.name, row.got, row.want)
		}
	}
}

func TestLabels(t *testing.T) {
	c := cluster(func(c *rayv1.RayCluster) {
		c.Spec.HeadGroupSpec.Template.Namespace = "elsewhere"
		c.Spec.HeadGroupSpec.Template.Labels = map[string]string{
			rayv1.LabelCluster: "x", rayv1.LabelNodeType: "x", rayv1.LabelGroup: "x", rayv1.LabelIsRayNode: "no", rayv1.LabelAppName: "template", "mine": "template",
		}
		c.Spec.HeadGroupSpec.Labels = map[string]string{rayv1.LabelCluster: "y", rayv1.LabelAppName: "group"}
	})
	head := headPod(c)
	want := map[string]string{
		rayv1.LabelIsRayNode: "no", rayv1.LabelCluster: "c", rayv1.LabelNodeType: "head", rayv1.LabelGroup: "headgroup", rayv1.LabelIdentifier: "c-head",
		rayv1.LabelAppName: "group", rayv1.LabelCreatedBy: "kuberay-operator", "mine": "template",
	}
	if !reflect.DeepEqual(head.Labels, want) {
		t.Errorf("5.03 labels: %v", head.Labels)
	}
	if owner := metav1.GetControllerOf(head); head.Namespace != "ns" || owner == nil || owner.UID != "u-1" || owner.Kind != "RayCluster" {
		t.Errorf("5.02 %s, %v", head.Namespace, owner)
	}
	s := DefaultSettings()
	svc := HeadService(&s, c)
	if svc.Spec.Selector[rayv1.LabelAppName] != "group" || svc.Labels[rayv1.LabelAppName] != "group" {
		t.Errorf("5.04 selector: %v", svc.Spec.Selector)
	}
	for k, v := range svc.Spec.Selector {
		if head.Labels[k] != v {
			t.Errorf("5.04 the Service selects %s=%s, but the head has %q", k, v, head.Labels[k])
		}
	}
	multi := cluster(func(c *rayv1.RayCluster) { group(c).NumOfHosts = 4 })
	labels := WorkerPod(&s, multi, group(multi), Replica{Name: "g-abcde", Index: 2, Host: 3}).Labels
	if labels[rayv1.LabelReplicaName] != "g-abcde" || labels[rayv1.LabelReplicaIndex] != "2" || labels[rayv1.LabelHostIndex] != "3" {
		t.Errorf("5.41 %v", labels)
	}
}

func TestSumResources_UsesDesiredReplicas(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	yes := true
	for _, row := range []struct {
		name                 string
		g                    rayv1.WorkerGroupSpec
		wantReplicas, wantOf int32
	}{
		{"5.29 as many as wanted", rayv1.WorkerGroupSpec{Replicas: n(3), MinReplicas: n(1), MaxReplicas: n(10), NumOfHosts: 1}, 3, 3},
		{"5.29 no fewer than the least", rayv1.WorkerGroupSpec{Replicas: n(0), MinReplicas: n(2), MaxReplicas: n(10), NumOfHosts: 1}, 2, 2},
		{"5.29 no more than the most", rayv1.WorkerGroupSpec{Replicas: n(15), MinReplicas: n(1), MaxReplicas: n(10), NumOfHosts: 1}, 10, 10},
		{"5.29 the least where nothing is wanted", rayv1.WorkerGroupSpec{MinReplicas: n(2), MaxReplicas: n(10), NumOfHosts: 1}, 2, 2},
		{"several hosts", rayv1.WorkerGroupSpec{Replicas: n(3), MinReplicas: n(1), MaxReplicas: n(10), NumOfHosts: 4}, 3, 12},
		{"suspended", rayv1.WorkerGroupSpec{Replicas: n(3), MinReplicas: n(1), MaxReplicas: n(10), NumOfHosts: 4, Suspend: &yes}, 0, 0},
		{"more than can be counted", rayv1.WorkerGroupSpec{Replicas: n(1 << 30), MinReplicas: n(0), MaxReplicas: n(1 << 30), NumOfHosts: 4}, 1 << 30, 1<<31 - 1},
	} {
		if replicas, pods := DesiredReplicas(&row.g); replicas != row.wantReplicas || pods != row.wantOf {
			t.Errorf("%s: %d, %d", row.name, replicas, pods)
		}
	}
	c := cluster(func(c *rayv1.RayCluster) {
		c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list("cpu", "2", "memory", "2Gi"), Requests: list("cpu", "1")}
		g := group(c)
		g.Replicas, g.NumOfHosts = n(9), 2 // limited to 3 replicas of 2 hosts
		g.Template.Spec.Containers[0].Resources.Limits = list("cpu", "500m", "nvidia.com/gpu", "1", "google.com/tpu", "4")
		g.Template.Spec.Containers = append(g.Template.Spec.Containers, corev1.Container{Name: "side", Resources: corev1.ResourceRequirements{Requests: list("cpu", "100m")}})
	})
	r := SumResources(c)
	if got := fmt.Sprint(r.CPU.String(), " ", r.Memory.String(), " ", r.GPU.String(), " ", r.TPU.String()); got != "4600m 2Gi 6 24" {
		t.Errorf("2.4 resources follow the desired number: %s", got)
	}
}

// These checks are made by the controller alone.
func TestValidate_Status(t *testing.T) {
	both := cluster(func(c *rayv1.RayCluster) {
		for _, kind := range []string{rayv1.RayClusterSuspending, rayv1.RayClusterSuspended} {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
	})
	if found := Validate(both); len(found) != 1 || found[0].Reason != InvalidStatus {
		t.Errorf("%v", found)
	}
	unset := cluster(func(c *rayv1.RayCluster) { group(c).MaxReplicas = nil })
	if found := Validate(unset); len(found) != 1 || found[0].Reason != InvalidSpec {
		t.Errorf("%v", found)
	}
}

// Settings of the user are not replaced by the controller's.
func TestPods_KeepUserSettings(t *testing.T) {
	c := cluster(func(c *rayv1.RayCluster) {
		yes := true
		c.Spec.EnableInTreeAutoscaling = &yes
		c.Spec.AutoscalerOptions = &rayv1.AutoscalerOptions{VolumeMounts: []corev1.VolumeMount{{Name: "own", MountPath: logsPath}}}
		c.Annotations = map[string]string{rayv1.AnnotationFTEnabled: "true"}
		c.Spec.HeadGroupSpec.RayStartParams = map[string]string{paramRedisPassword: "$MINE"}
		group(c).Template.Spec.InitContainers = []corev1.Container{{Name: waitName, Image: "own"}}
	})
	if init := workerPod(c).Spec.InitContainers; len(init) != 1 || init[0].Image != "own" {
		t.Errorf("5.15 init containers: %v", init)
	}
	head := headPod(c)
	if a := findContainer(head.Spec.Containers, autoscalerName); len(a.VolumeMounts) != 1 || a.VolumeMounts[0].Name != "own" {
		t.Errorf("mounts of the autoscaler: %v", a.VolumeMounts)
	}
	if _, times := envValue(head.Spec.Containers[0], rayv1.EnvRedisPassword); times != 0 {
		t.Error("a variable name is used as a password")
	}
}

// TestAuthSecret checks when a token is generated.
func TestAuthSecret(t *testing.T) {
	name, yes := "keys", true
	for _, row := range []struct {
		name string
		auth *rayv1.AuthOptions
		want bool
	}{
		{"5.53 no options", nil, false},
		{"5.53 no mode", &rayv1.AuthOptions{}, true},
		{"5.53 disabled", &rayv1.AuthOptions{Mode: rayv1.AuthDisabled}, false},
		{"5.53 token", &rayv1.AuthOptions{Mode: rayv1.AuthToken}, true},
		{"5.53 the user's own", &rayv1.AuthOptions{Mode: rayv1.AuthToken, SecretName: &name}, false},
		{"5.53 Kubernetes knows", &rayv1.AuthOptions{Mode: rayv1.AuthToken, EnableK8sTokenAuth: &yes}, false},
	} {
		c := cluster(func(c *rayv1.RayCluster) { c.Spec.AuthOptions = row.auth })
		if made := AuthSecret(c, "t"); (made != nil) != row.want || NeedsAuthSecret(c) != row.want {
			t.Errorf("%s: %v", row.name, made)
		}
	}
}
