package controllers

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestRayCluster runs the controller against a real API server; the test plays the kubelet. Golden
// tests of the build package show what Pods and the objects around them look like.
func TestRayCluster(t *testing.T) {
	t.Parallel()
	s := share(t, rayServer, onlyRay)
	rayCases(t, s, "basics", rayBasics)
	rayCases(t, s, "start", rayStart)
	rayCases(t, s, "better", rayDifferences)
	rayCases(t, s, "found", rayAdoption)
	rayCases(t, s, "network", rayNetwork)
	rayCases(t, s, "storage", rayStorage)
}

func TestRayCluster_YieldsToKubeRay(t *testing.T) {
	t.Parallel()
	rayYields(startApart(t, flowServer, onlyRay, "kuberay").namespace(t, "kuberay"))
}

// reads counts the requests about Pods: those that begin a watch, and those that ask.
type reads struct {
	next           http.RoundTripper
	watches, asked *atomic.Int64
}

// RoundTrip counts a request and sends it.
func (r reads) RoundTrip(req *http.Request) (*http.Response, error) {
	switch query := req.URL.Query(); {
	case req.Method != http.MethodGet || !strings.Contains(req.URL.Path, "/pods"):
	case query.Has("watch"):
		r.watches.Add(1)
	default:
		r.asked.Add(1)
	}
	return r.next.RoundTrip(req)
}

// TestRayCluster_ReadsPodsFromTheCache counts requests: a reconcile reads Pods from the cache of the watch alone, so
// the API server gets no request for Pods, however many clusters there are. TestObserveCluster_ListsOnlyItsPods
// measures the read from the cache.
func TestRayCluster_ReadsPodsFromTheCache(t *testing.T) {
	const clusters = 20
	var watches, asked atomic.Int64
	s := shareServer(t, apartServer, "reads")
	s.config = rest.CopyConfig(s.config)
	s.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reads{next, &watches, &asked} })
	s.manage(onlyRay)
	ns := s.namespace(t, "reads")
	ns.kubelet()
	ns.ray("first", nil, rayGroup("g", 1))
	ns.rayReady("first")
	// A cluster that was created less than 5s after the controller began, by clocks that may
	// differ, may have Pods of an earlier controller, and is read once for that.
	began := time.Now()
	testkit.Eventually(t, waitTimeout, "a time at which no controller began", func() bool {
		return time.Now().Truncate(time.Second).After(began.Add(5 * time.Second))
	})
	begin := asked.Load() // a watch may begin with a list
	for i := range clusters {
		ns.ray(fmt.Sprintf("c%d", i), nil, rayGroup("g", 3))
	}
	for i := range clusters {
		ns.rayReady(fmt.Sprintf("c%d", i))
	}
	if n := asked.Load() - begin; n != 0 || watches.Load() == 0 {
		t.Errorf("with %d watches of Pods they were read %d times for %d clusters", watches.Load(), n, clusters)
	}
}

var rayBasics = []rayCase{
	{"a head, clamped workers and the head's Service, owned by the cluster", rayDefault},
	{"the head's Service, its selector and its endpoints", rayHeadService},
	{"a name of 53 characters is accepted, one of 54 gets no Pods", rayNames},
	{"Pods are created with Ray's start command", rayStarts},
	{"Services of Ray Serve and of replicas of several hosts", rayMoreServices},
	{"an autoscaler has a service account and permissions", rayAutoscaler},
	{"a missing service account of the user: a warning and no Pods", rayNoAccount},
	{"deleted Pods are created again, under other names", rayDeleted},
	{"a failed Pod is deleted and created again", rayFailed},
	{"the end of the Ray container counts if it is not restarted", rayExit},
	{"two heads: nothing is deleted, and the status reports them", rayTwoHeads},
	{"a provisioned cluster whose head must not be created again", rayNoSecondHead},
	{"replicas count between min and max", rayClamps},
	{"scale-down deletes the right number", rayScaleDown},
	{"an autoscaler chooses the Pods to delete; its list is not changed", rayChosen},
	{"a burst of edits never makes too many Pods", rayBurst},
	{"suspend and resume", raySuspend},
	{"a suspension that has begun is completed", raySuspendAtomic},
	{"a worker group is suspended alone", raySuspendGroup},
	{"a worker group is suspended beside an autoscaler: a warning, and nothing changes", raySuspendScaledGroup},
	{"Recreate on a new image, not on replicas, tolerations and gates", rayRecreate},
	{"without a strategy an edit leaves the Pods", rayNoUpgrade},
	{"a head of another version is adopted", rayTakeover},
	{"replicas of several hosts are created and deleted together", rayMultiHost},
	{"Provisioned stays, HeadPodReady follows", rayLatches},
	{"ReplicaFailure is set and removed", rayReplicaFailure},
	{"counts are Pods", rayCounts},
	{"nothing is written when nothing changes", rayQuiet},
	{"a cluster of another manager is not changed", rayManagedBy},
	{"Redis: the finalizer first, the cleanup last", rayRedis},
	{"Redis: a failed cleanup, and one that times out", rayRedisStuck},
	{"the token is created once", rayAuth},
	{"a restricted namespace admits the Pods with all that is added to them", rayRestricted},
	{"the Ingress follows the spec, one of another owner is not changed", rayIngress},
	{"an invalid spec: a warning and no Pods", rayInvalid},
	{"events have KubeRay's reasons, actions and reporter", rayEventForm},
	{"workers that are created together have one event with all names", rayEventOfWorkers},
	{"metrics are set and removed", rayMetrics},
	{"a cluster that is being deleted gets no Pods", rayDeleting},
}

func rayDefault(s *space) {
	s.kubelet()
	g := rayGroup("small", 1)
	g.MinReplicas = ptr.To[int32](2)
	g.Template.Namespace = "elsewhere"
	g.Template.Labels = map[string]string{rayv1.LabelCluster: "mine", rayv1.LabelNodeType: "mine", rayv1.LabelGroup: "mine", rayv1.LabelIsRayNode: "mine"}
	c := s.ray("c", nil, g)
	s.awaitNodes("c", "small", 2, func(p *corev1.Pod) bool {
		return metav1.IsControlledBy(p, c) && p.Namespace == s.name && p.Labels[rayv1.LabelNodeType] == "worker" &&
			p.Labels[rayv1.LabelIsRayNode] == "mine" && strings.HasPrefix(p.Name, "c-small-worker-") && len(p.Name) == len("c-small-worker-")+5
	})
	head := s.awaitHead("c")
	if !metav1.IsControlledBy(head, c) || !strings.HasPrefix(head.Name, "c-head-") || head.Labels[rayv1.LabelGroup] != "headgroup" || head.Annotations[rayv1.AnnotationVersion] != build.Version {
		s.Errorf("head %+v", head.ObjectMeta)
	}
	svc := rayExists(s, "c-head-svc", &corev1.Service{})
	if !metav1.IsControlledBy(svc, c) {
		s.Errorf("service %+v", svc.ObjectMeta)
	}
	now := s.rayReady("c")
	if now.Status.StateTransitionTimes[rayv1.StateReady] == nil || now.Status.Reason != "" || now.Status.LastUpdateTime == nil || now.Status.ObservedGeneration != 1 {
		s.Errorf("status %+v", now.Status)
	}
}

func rayHeadService(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) {
		c.Spec.HeadGroupSpec.Template.Labels = map[string]string{rayv1.LabelAppName: "mine"}
	})
	s.ray("n", func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.ServiceType = corev1.ServiceTypeNodePort })
	c, n := s.rayReady("c"), s.rayReady("n")
	svc := rayExists(s, "c-head-svc", &corev1.Service{})
	if svc.Spec.Selector[rayv1.LabelAppName] != "mine" || svc.Spec.ClusterIP != corev1.ClusterIPNone || !svc.Spec.PublishNotReadyAddresses {
		s.Errorf("service %+v", svc.Spec)
	}
	if h := c.Status.Head; h.ServiceIP != "10.0.0.1" || h.PodIP != "10.0.0.1" || h.ServiceName != "c-head-svc" || !strings.HasPrefix(h.PodName, "c-head-") {
		s.Errorf("head %+v", h)
	}
	if c.Status.Endpoints["dashboard"] != "8265" || c.Status.Endpoints["gcs-server"] != "6379" || c.Status.Endpoints["client"] != "10001" {
		s.Errorf("endpoints %v", c.Status.Endpoints)
	}
	s.rayCustomHeadService()
	svc = rayExists(s, "n-head-svc", &corev1.Service{})
	for _, p := range svc.Spec.Ports {
		if p.NodePort == 0 || n.Status.Endpoints[p.Name] != fmt.Sprint(p.NodePort) {
			s.Errorf("port %+v, endpoints %v", p, n.Status.Endpoints)
		}
	}
	if n.Status.Head.ServiceIP != svc.Spec.ClusterIP {
		s.Errorf("head %+v, service at %s", n.Status.Head, svc.Spec.ClusterIP)
	}
	s.must(s.Delete(s.Context(), svc))
	rayExists(s, "n-head-svc", &corev1.Service{}) // it is created again
}

// rayCustomHeadService: of a Service of the user's everything is taken, and what the
// workers need is added.
func (s *space) rayCustomHeadService() {
	s.Helper()
	s.ray("custom", func(c *rayv1.RayCluster) {
		c.Spec.HeadServiceAnnotations = map[string]string{"theirs": "1", "both": "1"}
		c.Spec.HeadGroupSpec.HeadService = &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"a": "b", rayv1.LabelCluster: "no"}, Annotations: map[string]string{"both": "2"}},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"tier": "head", rayv1.LabelNodeType: "no"}, SessionAffinity: corev1.ServiceAffinityClientIP,
				Ports: []corev1.ServicePort{{Name: "dashboard", Port: 80}, {Name: "ssh", Port: 22}},
			},
		}
	}, rayGroup("g", 1))
	svc := rayExists(s, "mine", &corev1.Service{})
	ports := map[string]int32{}
	for _, p := range svc.Spec.Ports {
		ports[p.Name] = p.Port
	}
	if want := map[string]int32{"client": 10001, "dashboard": 80, "gcs-server": 6379, "metrics": 8080, "serve": 8000, "ssh": 22}; !maps.Equal(ports, want) {
		s.Errorf("ports %v, want %v", ports, want)
	}
	if svc.Namespace != s.name || svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP ||
		svc.Labels["a"] != "b" || svc.Labels[rayv1.LabelCluster] != "custom" || svc.Annotations["theirs"] != "1" || svc.Annotations["both"] != "2" ||
		svc.Spec.Selector["tier"] != "head" || svc.Spec.Selector[rayv1.LabelNodeType] != "head" || svc.Spec.Selector[rayv1.LabelCluster] != "custom" {
		s.Errorf("service %+v %+v", svc.ObjectMeta, svc.Spec)
	}
	if got := envOf(s.awaitNodes("custom", "g", 1)[0].Spec.Containers[0], rayv1.EnvRayAddress); got != "mine."+s.name+".svc.cluster.local:6379" {
		s.Errorf("workers look for %q", got)
	}
}

// refusedOr creates a cluster that cannot be carried out: either the API server refuses
// it with the text, or the controller warns of it and makes no Pods.
func (s *space) refusedOr(c *rayv1.RayCluster, reason, text string) {
	s.Helper()
	c.Namespace = s.name
	if err := s.Create(s.Context(), c); err != nil {
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), text) {
			s.Errorf("refused: %v, want %q", err, text)
		}
		return
	}
	e := s.awaitRayEvent(reason, text)
	if e.Type != corev1.EventTypeWarning || e.Action != "Validate" {
		s.Errorf("event %+v", e)
	}
	if pods := s.rayNodes(c.Name, ""); len(pods) > 0 {
		s.Errorf("there are %v", podNames(pods))
	}
	if now := s.awaitRay(c.Name, func(*rayv1.RayCluster) error { return nil }); now.Status.LastUpdateTime != nil {
		s.Errorf("the status was written: %+v", now.Status)
	}
}

func rayNames(s *space) {
	s.kubelet()
	name := "c" + strings.Repeat("x", 52)
	s.ray(name, nil, rayGroup("g", 1))
	s.rayReady(name)
	s.refusedOr(&rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Name: name + "x"}, Spec: rayv1.RayClusterSpec{HeadGroupSpec: rayv1.HeadGroupSpec{Template: rayTemplate()}}},
		build.InvalidMetadata, "53")
}

func rayStarts(s *space) {
	s.ray("c", nil, rayGroup("g", 1))
	w := s.awaitNodes("c", "g", 1)[0]
	address := "c-head-svc." + s.name + ".svc.cluster.local:6379"
	if got := strings.Join(w.Spec.Containers[0].Args, ""); !strings.Contains(got, "ray start ") || !strings.Contains(got, " --address="+address+" ") {
		s.Errorf("the worker runs %q", got)
	}
	for what, c := range map[string]corev1.Container{"worker": w.Spec.Containers[0], "head": s.awaitHead("c").Spec.Containers[0]} {
		if !mounts(c, "shared-mem", "/dev/shm") {
			s.Errorf("the %s mounts %v", what, c.VolumeMounts)
		}
	}
	if v := w.Spec.Volumes[0]; v.Name != "shared-mem" || v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumMemory {
		s.Errorf("volumes %+v", w.Spec.Volumes)
	}
	s.ray("disk", func(c *rayv1.RayCluster) {
		c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"plasma-directory": "/data"}
	})
	disk := s.awaitHead("disk")
	if mounts(disk.Spec.Containers[0], "", "/dev/shm") || slices.ContainsFunc(disk.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "shared-mem" }) {
		s.Errorf("with a plasma-directory there are %+v", disk.Spec.Volumes)
	}
	head := s.awaitHead("c")
	if got := strings.Join(head.Spec.Containers[0].Args, ""); !strings.Contains(got, "ray start --head ") {
		s.Errorf("the head runs %q", got)
	}
	env := map[string]string{}
	for _, e := range w.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	if env[rayv1.EnvRayAddress] != address || env[rayv1.EnvStartCommand] == "" {
		s.Errorf("env %v", env)
	}
	if len(w.Spec.InitContainers) != 1 || w.Spec.InitContainers[0].Name != "wait-gcs-ready" || len(w.Spec.Volumes) == 0 {
		s.Errorf("init %v, volumes %v", w.Spec.InitContainers, w.Spec.Volumes)
	}
	if !slices.ContainsFunc(head.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" }) {
		s.Errorf("ports %v", head.Spec.Containers[0].Ports)
	}
}

// mounts reports whether a container mounts a volume at path. If volume is empty, any volume counts.
func mounts(c corev1.Container, volume, path string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == path && (volume == "" || m.Name == volume)
	})
}

func rayMoreServices(s *space) {
	g := rayGroup("g", 0)
	g.NumOfHosts = 2
	s.ray("c", func(c *rayv1.RayCluster) {
		c.Annotations = map[string]string{rayv1.AnnotationEnableServeService: "true"}
	}, g)
	rayExists(s, "c-serve-svc", &corev1.Service{})
	svc := rayExists(s, "c-headless", &corev1.Service{})
	if svc.Spec.ClusterIP != corev1.ClusterIPNone || svc.Labels[rayv1.LabelHeadlessService] != "c" {
		s.Errorf("%+v", svc)
	}
}

func rayAutoscaler(s *space) {
	v2 := rayv1.AutoscalerV2
	c := s.ray("c", func(c *rayv1.RayCluster) {
		c.Spec.EnableInTreeAutoscaling, c.Spec.AutoscalerOptions = ptr.To(true), &rayv1.AutoscalerOptions{Version: &v2}
	}, rayGroup("g", 1))
	head, worker := s.awaitHead("c"), s.awaitNodes("c", "g", 1)[0]
	s.starts("head", head.Spec.Containers[0], openFiles+headStart+withPort+" --no-monitor ")
	if worker.Spec.RestartPolicy != corev1.RestartPolicyNever || strings.Contains(worker.Spec.Containers[0].Args[0], "no-monitor") {
		s.Errorf("worker %+v", worker.Spec)
	}
	if got := envOf(head.Spec.Containers[0], rayv1.EnvAutoscalerV2); got != "true" {
		s.Errorf("the head has %s=%q", rayv1.EnvAutoscalerV2, got)
	}
	if got := envOf(worker.Spec.Containers[0], rayv1.EnvAutoscalerV2); got != "" {
		s.Errorf("the worker has %s=%q", rayv1.EnvAutoscalerV2, got)
	}
	if head.Spec.ServiceAccountName != "c" || head.Spec.RestartPolicy != corev1.RestartPolicyNever || len(head.Spec.Containers) != 2 {
		s.Errorf("head %+v", head.Spec)
	}
	for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		if rayExists(s, "c", o); !metav1.IsControlledBy(o, c) {
			s.Errorf("%T is not the cluster's", o)
		}
	}
	for _, reason := range []string{"CreatedServiceAccount", "CreatedRole", "CreatedRoleBinding"} {
		s.awaitRayEvent(reason, s.name+"/c")
	}
}

func rayNoAccount(s *space) {
	s.ray("c", func(c *rayv1.RayCluster) {
		c.Spec.EnableInTreeAutoscaling = ptr.To(true)
		c.Spec.HeadGroupSpec.Template.Spec.ServiceAccountName = "mine"
	})
	if e := s.awaitRayEvent(raycluster.ReasonAccountNotFound, "mine"); e.Type != corev1.EventTypeWarning {
		s.Errorf("event %+v", e)
	}
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(strings.Contains(c.Status.Reason, "the service account mine"), "reason")
	})
	if pods := s.rayNodes("c", ""); len(pods) > 0 {
		s.Errorf("there are %v", podNames(pods))
	}
	s.must(s.Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "mine"}}))
	s.awaitHead("c")
}

func rayDeleted(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 2))
	s.rayReady("c")
	for _, group := range []string{"g", rayv1.HeadGroup} {
		was := s.rayNodes("c", group)
		s.must(s.Delete(s.Context(), &was[0]))
		now := s.awaitNodes("c", group, len(was), func(p *corev1.Pod) bool { return p.Name != was[0].Name })
		if len(was) == 2 && !slices.Contains(podNames(now), was[1].Name) {
			s.Errorf("%v became %v", podNames(was), podNames(now))
		}
		s.rayReady("c")
	}
}

func rayFailed(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 1))
	s.rayReady("c")
	for _, c := range []struct {
		group, reason string
		phase         corev1.PodPhase
	}{{"g", raycluster.ReasonDeletedWorkerPod, corev1.PodSucceeded}, {rayv1.HeadGroup, raycluster.ReasonDeletedHeadPod, corev1.PodFailed}} {
		was := s.rayNodes("c", c.group)[0].Name
		s.rayPod(was, func(p *corev1.Pod) { p.Status.Phase = c.phase })
		s.awaitNodes("c", c.group, 1, func(p *corev1.Pod) bool { return p.Name != was })
		s.awaitRayEvent(c.reason, fmt.Sprintf("%s/%s; Pod status: %s; Pod restart policy: Always; Ray container terminated status: nil", s.name, was, c.phase))
		s.rayReady("c")
	}
}

func rayExit(s *space) {
	s.kubelet()
	never := rayGroup("never", 1)
	never.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	side := corev1.Container{Name: "side", Image: "side"}
	never.Template.Spec.Containers = append(never.Template.Spec.Containers, side)
	always := rayGroup("always", 1)
	always.Template.Spec.Containers = append(always.Template.Spec.Containers, side)
	s.ray("c", nil, never, always)
	s.rayReady("c")
	gone, kept := s.rayNodes("c", "never")[0].Name, s.rayNodes("c", "always")[0].Name
	end := func(p *corev1.Pod) {
		// Statuses come in any order: the first is not Ray's.
		slices.Reverse(p.Status.ContainerStatuses)
		p.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
	}
	s.rayPod(kept, end)
	s.rayPod(gone, end)
	s.awaitNodes("c", "never", 1, func(p *corev1.Pod) bool { return p.Name != gone })
	s.awaitRayEvent(raycluster.ReasonDeletedWorkerPod, "Error (exit code 3)")
	s.awaitNodes("c", "always", 1, func(p *corev1.Pod) bool { return p.Name == kept })
}

func rayTwoHeads(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 1))
	s.rayReady("c")
	second := s.awaitHead("c").DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{Namespace: s.name, Name: "second", Labels: second.Labels}
	s.must(s.Create(s.Context(), second))
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(strings.Contains(c.Status.Reason, "2 head pods found [") && c.Status.State == "", "reason")
	})
	s.rayRests("c")
	if n := len(s.rayNodes("c", rayv1.HeadGroup)); n != 2 {
		s.Errorf("%d heads", n)
	}
	s.must(s.Delete(s.Context(), second))
	s.rayReady("c")
}

func rayNoSecondHead(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) {
		c.Annotations = map[string]string{rayv1.AnnotationDisableHeadRestart: "true"}
	})
	s.rayReady("c")
	s.must(s.Delete(s.Context(), s.awaitHead("c")))
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(conditionIs(c, rayv1.HeadPodReady, "False", rayv1.ReasonHeadPodNotFound), conditionIs(c, rayv1.RayClusterProvisioned, "True", ""))
	})
	s.rayRests("c")
	if pods := s.rayNodes("c", ""); len(pods) > 0 {
		s.Errorf("there are %v", podNames(pods))
	}
}

func rayClamps(s *space) {
	low, high := rayGroup("low", 0), rayGroup("high", 9)
	low.MinReplicas, high.MaxReplicas = ptr.To[int32](1), ptr.To[int32](2)
	s.ray("c", nil, low, high)
	s.awaitNodes("c", "low", 1)
	s.awaitNodes("c", "high", 2)
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(c.Status.DesiredWorkerReplicas == 3 && c.Status.MinWorkerReplicas == 1 && c.Status.MaxWorkerReplicas == 102, "counts")
	})
}

func rayScaleDown(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 4))
	s.rayReady("c")
	was := podNames(s.rayNodes("c", "g"))
	s.rayPod(was[1], func(p *corev1.Pod) { raySet(p, corev1.PodRunning, false) }) // it goes first
	s.awaitRay("c", func(c *rayv1.RayCluster) error { return check(c.Status.ReadyWorkerReplicas == 3, "ready") })
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](2) })
	now := podNames(s.awaitNodes("c", "g", 2))
	if slices.Contains(now, was[1]) || !slices.Contains(was, now[0]) || !slices.Contains(was, now[1]) {
		s.Errorf("%v became %v, and %s was not ready", was, now, was[1])
	}
	// Of events of one reason about one object the API server keeps the first note: it
	// names the one of the two that was deleted first.
	s.awaitRayEvent(raycluster.ReasonDeletedWorkerPod, "Deleted Pod "+s.name+"/c-g-worker-")
	s.rayReady("c")
}

func rayChosen(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) { c.Spec.EnableInTreeAutoscaling = ptr.To(true) }, rayGroup("g", 3))
	s.rayReady("c")
	was := podNames(s.rayNodes("c", "g"))
	list := []string{"no-such-pod", was[1]}
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].ScaleStrategy.WorkersToDelete = list })
	now := podNames(s.awaitNodes("c", "g", 3, func(p *corev1.Pod) bool { return p.Name != was[1] })) // replicas are as before
	if !slices.Contains(now, was[0]) || !slices.Contains(now, was[2]) {
		s.Errorf("%v became %v", was, now)
	}
	s.awaitRayEvent(raycluster.ReasonDeletedWorkerPod, "Deleted pod "+s.name+"/"+was[1])
	// The autoscaler has not decided about the others.
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](1) })
	s.awaitRay("c", func(c *rayv1.RayCluster) error { return check(c.Status.DesiredWorkerReplicas == 1, "desired") })
	c := s.rayRests("c")
	if got := podNames(s.rayNodes("c", "g")); len(got) != 3 || !slices.Equal(c.Spec.WorkerGroupSpecs[0].ScaleStrategy.WorkersToDelete, list) {
		s.Errorf("there are %v, the list is %v", got, c.Spec.WorkerGroupSpecs[0].ScaleStrategy.WorkersToDelete)
	}
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.WorkerGroupSpecs[0].ScaleStrategy.WorkersToDelete = now[:2]
	})
	s.awaitNodes("c", "g", 1, func(p *corev1.Pod) bool { return p.Name == now[2] })
}

func rayBurst(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 1))
	made := map[string]bool{}
	end := s.followPods(func(_ watch.EventType, pod *corev1.Pod) {
		if pod.Labels[rayv1.LabelGroup] == "g" {
			made[pod.Name] = true
		}
	})
	for n := range int32(10) {
		s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To(n + 1) })
	}
	s.awaitNodes("c", "g", 10)
	s.rayReady("c")
	end()
	if len(made) != 10 {
		s.Errorf("%d Pods were made for 10: %v", len(made), slices.Sorted(maps.Keys(made)))
	}
}

func raySuspend(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 2))
	was := s.rayReady("c")
	suspend := func(p *bool) { s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.Suspend = p }) }
	suspend(ptr.To(true))
	c := s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(conditionIs(c, rayv1.RayClusterSuspended, "True", ""), conditionIs(c, rayv1.RayClusterSuspending, "False", ""),
			conditionIs(c, rayv1.RayClusterProvisioned, "False", rayv1.ReasonPodsProvisioning), check(c.Status.State == rayv1.StateSuspended, "state"))
	})
	if c.Status.Head.PodName != "" || c.Status.StateTransitionTimes[rayv1.StateSuspended] == nil || c.Status.AvailableWorkerReplicas != 0 {
		s.Errorf("status %+v", c.Status)
	}
	s.awaitRayEvent(raycluster.ReasonDeletedPod, "suspended")
	s.awaitNodes("c", "", 0)
	suspend(nil) // does not resume it
	s.rayRests("c")
	suspend(ptr.To(false))
	now := s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(conditionIs(c, rayv1.RayClusterSuspended, "False", ""), conditionIs(c, rayv1.RayClusterProvisioned, "True", ""), check(c.Status.State == rayv1.StateReady, "state"))
	})
	if now.Status.Head.PodName == was.Status.Head.PodName {
		s.Errorf("the head is %s as before", now.Status.Head.PodName)
	}
}

func raySuspendAtomic(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) {
		c.Spec.HeadGroupSpec.Template.Finalizers = []string{"test.k8s4r.io/hold"}
	})
	s.rayReady("c")
	head := s.awaitHead("c")
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(true) })
	s.awaitCondition("c", rayv1.RayClusterSuspending, "True", "")
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(false) })
	s.awaitNodes("c", "", 0)
	s.rayRests("c")
	if err := conditionIs(s.awaitRay("c", func(*rayv1.RayCluster) error { return nil }), rayv1.RayClusterSuspending, "True", ""); err != nil {
		s.Error(err)
	}
	s.freed(head.Name)
	second := s.awaitHead("c")
	s.awaitCondition("c", rayv1.RayClusterSuspended, "False", "")
	s.must(s.Delete(s.Context(), &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c"}}))
	s.freed(second.Name) // or the namespace cannot go
}

// freed takes the finalizers off a Pod.
func (s *space) freed(name string) {
	s.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	s.must(s.Patch(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}, patch))
}

func raySuspendGroup(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("a", 1), rayGroup("b", 1))
	s.rayReady("c")
	head := s.awaitHead("c").Name
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Suspend = ptr.To(true) })
	s.awaitNodes("c", "a", 0)
	s.awaitRayEvent(raycluster.ReasonDeletedWorkerPod, "worker group a")
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(c.Status.State == rayv1.StateReady && c.Status.DesiredWorkerReplicas == 1 && c.Status.MaxWorkerReplicas == 100, "counts")
	})
	if s.awaitHead("c").Name != head || len(s.rayNodes("c", "b")) != 1 {
		s.Errorf("there are %v", podNames(s.rayNodes("c", "")))
	}
	g := rayGroup("g", 1)
	g.Suspend = ptr.To(true)
	s.refusedOr(&rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: rayv1.RayClusterSpec{
		HeadGroupSpec: rayv1.HeadGroupSpec{Template: rayTemplate()}, WorkerGroupSpecs: []rayv1.WorkerGroupSpec{g}, EnableInTreeAutoscaling: ptr.To(true),
	}}, build.InvalidSpec, "suspend")
}

// raySuspendScaledGroup suspends a group beside an autoscaler by an edit, which admission accepts: a warning, and
// neither Pods nor status change.
func raySuspendScaledGroup(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) { c.Spec.EnableInTreeAutoscaling = ptr.To(true) }, rayGroup("g", 1))
	s.rayReady("c")
	s.rayRests("c")
	pods := podNames(s.rayNodes("c", ""))
	before := s.awaitRay("c", func(*rayv1.RayCluster) error { return nil }).Status
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Suspend = ptr.To(true) })
	s.awaitRayEvent(build.InvalidSpec, "spec.workerGroupSpecs[g].suspend")
	s.rayRests("c")
	after := s.awaitRay("c", func(*rayv1.RayCluster) error { return nil }).Status
	if now := podNames(s.rayNodes("c", "")); !slices.Equal(now, pods) || !equality.Semantic.DeepEqual(after, before) {
		s.Errorf("Pods %v, then %v; status %+v, then %+v", pods, now, before, after)
	}
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Suspend = nil })
	s.rayReady("c")
}

func upgrade(kind rayv1.UpgradeType) func(*rayv1.RayCluster) {
	return func(c *rayv1.RayCluster) {
		c.Spec.UpgradeStrategy = &rayv1.RayClusterUpgradeStrategy{Type: &kind}
	}
}

func rayRecreate(s *space) {
	s.kubelet()
	s.ray("c", upgrade(rayv1.UpgradeRecreate), rayGroup("g", 1))
	s.rayReady("c")
	was := podNames(s.rayNodes("c", ""))
	s.editRay("c", func(c *rayv1.RayCluster) {
		g := &c.Spec.WorkerGroupSpecs[0]
		g.Replicas = ptr.To[int32](2)
		g.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		g.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test.k8s4r.io/gate"}}
	})
	s.awaitNodes("c", "", 3)
	for _, name := range was {
		if !slices.Contains(podNames(s.rayNodes("c", "")), name) {
			s.Errorf("%s is gone", name)
		}
	}
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Template.Spec.Containers[0].Image = "new" })
	s.awaitNodes("c", "", 3, func(p *corev1.Pod) bool { return !slices.Contains(was, p.Name) })
	s.awaitRayEvent(raycluster.ReasonDeletedPod, "Recreate")
}

func rayNoUpgrade(s *space) {
	s.kubelet()
	s.ray("none", nil, rayGroup("g", 1))
	s.ray("never", upgrade(rayv1.UpgradeNone), rayGroup("g", 1))
	for _, name := range []string{"none", "never"} {
		s.rayReady(name)
		was := podNames(s.rayNodes(name, ""))
		s.editRay(name, func(c *rayv1.RayCluster) {
			c.Spec.WorkerGroupSpecs[0].Template.Spec.Containers[0].Image = "new"
			c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](2)
		})
		now := podNames(s.awaitNodes(name, "", 3))
		for _, pod := range was {
			if !slices.Contains(now, pod) {
				s.Errorf("%s: %s is gone", name, pod)
			}
		}
	}
}

func rayTakeover(s *space) {
	s.kubelet()
	s.ray("c", upgrade(rayv1.UpgradeRecreate), rayGroup("g", 1))
	s.rayReady("c")
	head := s.awaitHead("c")
	was := podNames(s.rayNodes("c", ""))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"ray.io/kuberay-version":"v1.7.0","ray.io/upgrade-strategy-recreate-hash":"THEIRS"}}}`))
	s.must(s.Patch(s.Context(), head, patch))
	s.awaitNodes("c", rayv1.HeadGroup, 1, func(p *corev1.Pod) bool {
		return p.Annotations[rayv1.AnnotationVersion] == build.Version && p.Annotations[rayv1.AnnotationRecreateHash] != "THEIRS"
	})
	s.rayRests("c")
	if now := podNames(s.rayNodes("c", "")); !slices.Equal(now, was) {
		s.Errorf("%v became %v", was, now)
	}
}

func rayMultiHost(s *space) {
	s.kubelet()
	g := rayGroup("tpu", 2)
	g.NumOfHosts = 3
	s.ray("c", nil, g)
	s.rayReady("c")
	replicas := func() map[string][]string {
		all := map[string][]string{}
		for _, p := range s.awaitNodes("c", "tpu", 6) {
			r := p.Labels[rayv1.LabelReplicaName]
			all[r] = append(all[r], p.Labels[rayv1.LabelReplicaIndex]+p.Labels[rayv1.LabelHostIndex])
		}
		return all
	}
	whole := func() map[string][]string {
		all, places := replicas(), []string{}
		for name, hosts := range all {
			if len(hosts) != 3 || !strings.HasPrefix(name, "tpu-") || len(name) != len("tpu-")+5 {
				s.Errorf("replica %s has %v", name, hosts)
			}
			places = append(places, hosts...)
		}
		if slices.Sort(places); !slices.Equal(places, []string{"00", "01", "02", "10", "11", "12"}) {
			s.Errorf("places %v", places)
		}
		return all
	}
	was := whole()
	lost := s.rayNodes("c", "tpu")[0]
	s.must(s.Delete(s.Context(), &lost))
	other := func(p *corev1.Pod) bool {
		return p.Labels[rayv1.LabelReplicaName] != lost.Labels[rayv1.LabelReplicaName]
	}
	s.awaitNodes("c", "tpu", 6, other)
	s.rayReady("c")
	now := whole()
	delete(was, lost.Labels[rayv1.LabelReplicaName])
	for name := range was {
		if now[name] == nil {
			s.Errorf("replica %s was whole, and is gone", name)
		}
	}
	lost = s.rayNodes("c", "tpu")[0]
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.WorkerGroupSpecs[0].ScaleStrategy.WorkersToDelete = []string{lost.Name}
		c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](1)
	})
	s.awaitNodes("c", "tpu", 3, other)
}

func rayLatches(s *space) {
	s.ray("c", nil)
	head := s.awaitHead("c").Name
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(conditionIs(c, rayv1.RayClusterProvisioned, "False", rayv1.ReasonPodsProvisioning), conditionIs(c, rayv1.HeadPodReady, "False", ""))
	})
	s.rayPod(head, func(p *corev1.Pod) { raySet(p, corev1.PodRunning, true) })
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(conditionIs(c, rayv1.RayClusterProvisioned, "True", rayv1.ReasonAllPodRunningAndReadyFirstTime), conditionIs(c, rayv1.HeadPodReady, "True", rayv1.ReasonHeadPodRunningAndReady))
	})
	s.rayPod(head, func(p *corev1.Pod) {
		raySet(p, corev1.PodRunning, false)
		p.Status.Conditions[0].Message = "containers with unready status: [ray]"
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
	})
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(conditionIs(c, rayv1.RayClusterProvisioned, "True", ""), conditionIs(c, rayv1.HeadPodReady, "False", "CrashLoopBackOff"),
			check(c.Status.State == "" && strings.Contains(c.Status.Reason, "CrashLoopBackOff"), "state"))
	})
}

func rayReplicaFailure(s *space) {
	s.kubelet()
	g := rayGroup("g", 3)
	g.Template.Spec.PriorityClassName = "no-such-class"
	s.ray("c", nil, g)
	c := s.awaitCondition("c", rayv1.ReplicaFailure, "True", rayv1.ReasonFailedCreateWorkerPod)
	if !strings.Contains(c.Status.Reason, "no-such-class") {
		s.Errorf("reason %q", c.Status.Reason)
	}
	s.awaitRayEvent(raycluster.ReasonFailedCreateWorker, "no-such-class")
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Template.Spec.PriorityClassName = "" })
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(c.Status.State == rayv1.StateReady && !slices.ContainsFunc(c.Status.Conditions, func(d metav1.Condition) bool { return d.Type == rayv1.ReplicaFailure }), "failure")
	})
}

func rayCounts(s *space) {
	s.kubelet()
	g := rayGroup("g", 9)
	g.NumOfHosts, g.MaxReplicas, g.MinReplicas = 2, ptr.To[int32](2), ptr.To[int32](1)
	s.ray("c", nil, g)
	s.rayReady("c")
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		d := c.Status
		return check(d.DesiredWorkerReplicas == 4 && d.AvailableWorkerReplicas == 4 && d.ReadyWorkerReplicas == 4 && d.MinWorkerReplicas == 2 && d.MaxWorkerReplicas == 4, "counts")
	})
}

func rayQuiet(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 1))
	before := s.rayReady("c")
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Annotations = map[string]string{"mine": "1"}
		c.Spec.HeadServiceAnnotations = map[string]string{"a": "b"}
	})
	c := s.rayRests("c")
	if c.Generation == before.Generation || c.Status.ObservedGeneration != before.Status.ObservedGeneration || !c.Status.LastUpdateTime.Equal(before.Status.LastUpdateTime) {
		s.Errorf("status %+v", c.Status)
	}
}

func rayManagedBy(s *space) {
	s.ray("c", func(c *rayv1.RayCluster) { c.Spec.ManagedBy = ptr.To(rayv1.ManagedByMultiKueue) }, rayGroup("g", 1))
	c := s.rayRests("c")
	if c.Status.LastUpdateTime != nil || len(s.rayNodes("c", "")) > 0 || len(c.Finalizers) > 0 {
		s.Errorf("it was touched: %+v", c)
	}
	if err := s.Get(s.Context(), s.key("c-head-svc"), &corev1.Service{}); !apierrors.IsNotFound(err) {
		s.Errorf("service: %v", err)
	}
}

func rayAuth(s *space) {
	s.ray("c", func(c *rayv1.RayCluster) { c.Spec.AuthOptions = &rayv1.AuthOptions{Mode: rayv1.AuthToken} })
	s.ray("mine", func(c *rayv1.RayCluster) {
		c.Spec.AuthOptions = &rayv1.AuthOptions{Mode: rayv1.AuthToken, SecretName: ptr.To("my-secret")}
	})
	secret := rayExists(s, "c", &corev1.Secret{})
	if len(secret.Data[rayv1.KeyAuthToken]) != 44 {
		s.Errorf("secret %v", secret.Data)
	}
	s.awaitHead("mine")
	s.editRay("c", func(c *rayv1.RayCluster) { c.Annotations = map[string]string{"look": "again"} })
	s.rayRests("c")
	again := rayExists(s, "c", &corev1.Secret{})
	if again.ResourceVersion != secret.ResourceVersion {
		s.Error("the token was written twice")
	}
	for _, name := range []string{"mine", "my-secret"} {
		if err := s.Get(s.Context(), s.key(name), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			s.Errorf("secret %s: %v", name, err)
		}
	}
	s.must(s.Delete(s.Context(), again))
	s.must(s.Delete(s.Context(), s.awaitHead("c"))) // Secrets are not watched; the next Pod needs it
	rayExists(s, "c", &corev1.Secret{})
}

func rayIngress(s *space) {
	foreign := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "f-head-ingress"}}
	foreign.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "mine", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	s.must(s.Create(s.Context(), foreign))
	ingress := func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.EnableIngress = ptr.To(true) }
	s.ray("c", ingress)
	s.ray("f", ingress)
	in := rayExists(s, "c-head-ingress", &networkingv1.Ingress{})
	if p := in.Spec.Rules[0].HTTP.Paths[0]; p.Path != "/" || p.Backend.Service.Port.Number != 8265 {
		s.Errorf("path %+v", p)
	}
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.HeadGroupSpec.IngressOptions = &rayv1.IngressOptions{Host: "ray.example"}
	})
	s.awaitRayEvent("UpdatedIngress", "c-head-ingress")
	if in = rayExists(s, "c-head-ingress", &networkingv1.Ingress{}); in.Spec.Rules[0].Host != "ray.example" {
		s.Errorf("rules %+v", in.Spec.Rules)
	}
	s.awaitRayEvent("FailedToUpdateIngress", "f-head-ingress")
	s.awaitHead("f")
	var now networkingv1.Ingress
	s.must(s.Get(s.Context(), s.key("f-head-ingress"), &now))
	if now.ResourceVersion != foreign.ResourceVersion {
		s.Error("another's Ingress was changed")
	}
}

func rayInvalid(s *space) {
	g := rayGroup("g", 1)
	g.RayStartParams = map[string]string{"num-cpus": "1"}
	g.Resources = map[string]string{"CPU": "1"}
	s.refusedOr(&rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: rayv1.RayClusterSpec{
		HeadGroupSpec: rayv1.HeadGroupSpec{Template: rayTemplate()}, WorkerGroupSpecs: []rayv1.WorkerGroupSpec{g},
	}}, build.InvalidSpec, "num-cpus")
	// What admission cannot see, only the controller says.
	c := s.ray("d", nil, rayGroup("g", 1))
	s.awaitHead("d")
	s.awaitRay("d", func(c *rayv1.RayCluster) error { return check(c.Status.LastUpdateTime != nil, "written") })
	testkit.EventuallyNoError(s, waitTimeout, "a status that cannot be", func() error {
		s.must(s.Get(s.Context(), client.ObjectKeyFromObject(c), c))
		for i := range c.Status.Conditions {
			if d := &c.Status.Conditions[i]; d.Type == rayv1.RayClusterSuspending || d.Type == rayv1.RayClusterSuspended {
				d.Status = metav1.ConditionTrue
			}
		}
		return s.Status().Update(s.Context(), c)
	})
	s.awaitRayEvent(build.InvalidStatus, "RayClusterSuspending and RayClusterSuspended must not both be True")
}

func rayEventForm(s *space) {
	s.ray("c", nil, rayGroup("g", 1))
	head, worker := s.awaitHead("c").Name, s.awaitNodes("c", "g", 1)[0].Name
	for _, c := range []struct{ reason, note string }{
		{"CreatedService", "Created service " + s.name + "/c-head-svc"},
		{"CreatedHeadPod", "Created head Pod " + s.name + "/" + head},
		{"CreatedWorkerPod", "Created worker Pod " + s.name + "/" + worker},
	} {
		e := s.awaitRayEvent(c.reason, c.note)
		if e.Note != c.note || e.Type != corev1.EventTypeNormal || e.Action != "Create" || e.ReportingController != "raycluster-controller" || e.Regarding.Name != "c" {
			s.Errorf("event %+v", e)
		}
	}
}

func rayEventOfWorkers(s *space) {
	s.ray("c", nil, rayGroup("g", 3))
	var names []string
	for _, p := range s.awaitNodes("c", "g", 3) {
		names = append(names, s.name+"/"+p.Name)
	}
	e := s.awaitRayEvent("CreatedWorkerPod", "Created 3 worker Pods: ")
	for _, name := range names {
		if !strings.Contains(e.Note, name) || e.Series != nil {
			s.Errorf("no event names %s, or there are several events: %+v", name, e)
		}
	}
}

func rayDeleting(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) { c.Finalizers = []string{"test.k8s4r.io/hold"} }, rayGroup("g", 1))
	s.rayReady("c")
	s.must(s.Delete(s.Context(), &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c"}}))
	s.awaitRay("c", func(c *rayv1.RayCluster) error { return check(c.DeletionTimestamp != nil, "deleted") })
	for _, p := range s.rayNodes("c", "") {
		s.must(s.Delete(s.Context(), &p))
	}
	s.rayRests("c")
	if pods := s.rayNodes("c", ""); len(pods) > 0 {
		s.Errorf("there are %v", podNames(pods))
	}
	s.editRay("c", func(c *rayv1.RayCluster) { c.Finalizers = nil })
}
