package controllers

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build/buildtest"
	"k8s4r.io/k8s4r/internal/testkit"
)

const rayPolicy = "k8s4r-rayclusters"

// rays is an API server that knows RayClusters, without any controller.
type rays struct {
	*testing.T
	client.Client
	config *rest.Config
}

func newRays(t *testing.T, config *rest.Config) *rays {
	t.Helper()
	s := &rays{T: t, config: config}
	s.Client = s.client(s.config)
	awaitPolicies(t, s)
	return s
}

func (s *rays) client(config *rest.Config) client.Client {
	s.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, rayv1.AddToScheme} {
		s.must(add(scheme))
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	s.must(err)
	return c
}

// in is the same API server in a part of the test.
func (s *rays) in(t *testing.T) *rays { return &rays{T: t, Client: s.Client, config: s.config} }

func (s *rays) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *rays) await(what string, done func() bool) {
	s.Helper()
	testkit.Eventually(s, waitTimeout, what, done)
}

// cluster has a group for each number of hosts, all of one name.
func (s *rays) cluster(name string, hosts ...int32) *rayv1.RayCluster {
	c := &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	c.Spec.RayVersion = "2.52.0"
	c.Spec.HeadGroupSpec.Template.Spec.Containers = []corev1.Container{{Name: "ray", Image: "ray"}}
	for _, n := range hosts {
		g := rayv1.WorkerGroupSpec{GroupName: "g", NumOfHosts: n, MinReplicas: new(int32), MaxReplicas: new(int32)}
		g.Template = *c.Spec.HeadGroupSpec.Template.DeepCopy()
		c.Spec.WorkerGroupSpecs = append(c.Spec.WorkerGroupSpecs, g)
	}
	return c
}

// TestRayCluster_Admission tests what the policy rejects, on creation and on updates.
func TestRayCluster_Admission(t *testing.T) {
	t.Parallel()
	s := newRays(t, share(t, podServer, onlyVCJob).config)
	cases, err := buildtest.Cases()
	if err != nil || len(cases) < 50 {
		t.Fatal(len(cases), err)
	}
	s.must(s.Create(t.Context(), s.cluster("stored", 1)))
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			s := s.in(t)
			c.Cluster.Namespace = "default"
			checkError(t, "create", c.Want, s.Create(t.Context(), c.Cluster.DeepCopy(), client.DryRunAll))
			if c.Cluster.Name != "plain" || len(c.Cluster.Labels) > 0 {
				return // the name and the origin of a cluster are set on creation
			}
			var stored rayv1.RayCluster
			s.must(s.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "stored"}, &stored))
			stored.Spec, stored.Annotations = c.Cluster.Spec, c.Cluster.Annotations
			if c.OnlyOnCreate {
				c.Want = ""
			}
			checkError(t, "edit", c.Want, s.Update(t.Context(), &stored, client.DryRunAll))
		})
	}
	t.Run("five hundred groups", func(t *testing.T) {
		c := s.cluster("many", make([]int32, 500)...)
		for i := range c.Spec.WorkerGroupSpecs {
			g := &c.Spec.WorkerGroupSpecs[i]
			g.GroupName, g.NumOfHosts, g.Labels = fmt.Sprintf("group-%d", i), 1, map[string]string{"zone": "a"}
			g.RayStartParams = map[string]string{"dashboard-agent-listen-port": "52365"}
		}
		checkError(t, "create", "", s.Create(t.Context(), c, client.DryRunAll))
	})
	t.Run("the schema", func(t *testing.T) { s.in(t).schema() })
	t.Run("managedBy", func(t *testing.T) { s.in(t).managedBy() })
	t.Run("v1alpha1", func(t *testing.T) { s.in(t).olderVersion() })
	t.Run("NetworkPolicies without DNS", func(t *testing.T) { s.in(t).egressWithoutDNS() })
	t.Run("a scheduler that is not there", func(t *testing.T) { s.in(t).scheduler() })
	t.Run("a deletion policy of an existing claim", func(t *testing.T) { s.in(t).ownClaimPolicy() })
	t.Run("a group is suspended beside an autoscaler", func(t *testing.T) { s.in(t).suspendsScaledGroup() })
}

// schema tests the defaults and the validation of the CRD.
func (s *rays) schema() {
	c := s.raw("raw", `{"headGroupSpec": {"template": {"spec": {"containers": [{"name": "r"}]}}},
		"workerGroupSpecs": [{"groupName": "g", "template": {"spec": {"containers": [{"name": "r"}]}}}]}`)
	s.must(s.Create(s.Context(), c))
	groups, _, _ := unstructured.NestedSlice(c.Object, "spec", "workerGroupSpecs")
	g := groups[0].(map[string]any)
	for field, want := range map[string]int64{"replicas": 0, "minReplicas": 0, "maxReplicas": 2147483647, "numOfHosts": 1, "priority": 0} {
		if g[field] != want {
			s.Errorf("%s is %v, want %d", field, g[field], want)
		}
	}
	const head = `"headGroupSpec": {"template": {"spec": {"containers": [{"name": "r"}]}}}`
	for spec, want := range map[string]string{
		`{}`: "spec.headGroupSpec: Required value",
		`{` + head + `, "workerGroupSpecs": [{"template": {}}]}`:            "spec.workerGroupSpecs[0].groupName: Required value",
		`{` + head + `, "upgradeStrategy": {"type": "Sometimes"}}`:          `spec.upgradeStrategy.type: Unsupported value: "Sometimes"`,
		`{` + head + `, "authOptions": {"mode": "password"}}`:               `spec.authOptions.mode: Unsupported value: "password"`,
		`{` + head + `, "autoscalerOptions": {"version": "v3"}}`:            `spec.autoscalerOptions.version: Unsupported value: "v3"`,
		`{` + head + `, "autoscalerOptions": {"upscalingMode": "Wild"}}`:    `spec.autoscalerOptions.upscalingMode: Unsupported value: "Wild"`,
		`{` + head + `, "gcsFaultToleranceOptions": {"backend": "sqlite"}}`: `spec.gcsFaultToleranceOptions.backend: Unsupported value: "sqlite"`,
	} {
		checkError(s.T, spec, want, s.Create(s.Context(), s.raw("bad", spec), client.DryRunAll))
	}
}

// olderVersion is a client that knows ray.io/v1alpha1 alone. Its objects are stored as v1, and the
// same checks apply to them.
func (s *rays) olderVersion() {
	const head = `"headGroupSpec": {"template": {"spec": {"containers": [{"name": "r"}]}}}`
	older := func(name, spec string) *unstructured.Unstructured {
		c := s.raw(name, spec)
		c.SetAPIVersion("ray.io/v1alpha1")
		return c
	}
	c := older("older", `{`+head+`, "workerGroupSpecs": [{"groupName": "g", "template": {"spec": {"containers": [{"name": "r", "ports": [{"containerPort": 80}]}]}}}], "unknown": 1}`)
	const deprecated = "ray.io/v1alpha1 RayCluster is deprecated; use ray.io/v1 RayCluster"
	if got := s.collectWarnings(func(as client.Client) error { return as.Create(s.Context(), c) }); !hasWarning(got, deprecated) {
		s.Errorf("created with the warnings %v", got)
	}
	var now rayv1.RayCluster
	s.must(s.Get(s.Context(), client.ObjectKeyFromObject(c), &now))
	g := now.Spec.WorkerGroupSpecs[0]
	if *g.MaxReplicas != 2147483647 || g.NumOfHosts != 1 || g.Template.Spec.Containers[0].Ports[0].Protocol != corev1.ProtocolTCP {
		s.Errorf("read as v1 it has no defaults: %+v", g)
	}
	for spec, want := range map[string]string{ // by the schema, by its rules, and by policies
		`{}`: "spec.headGroupSpec: Required value",
		`{` + head + `, "workerGroupSpecs": [{"groupName": "g", "template": {"spec": {"containers": "none"}}}]}`:                              `spec.workerGroupSpecs[0].template.spec.containers: Invalid value: "string"`,
		`{` + head + `, "workerGroupSpecs": [{"groupName": "g", "replicas": 100001, "template": {"spec": {"containers": [{"name": "r"}]}}}]}`: "spec.workerGroupSpecs[0].replicas: Invalid value: 100001",
		`{` + head + `, "managedBy": "someone.example/else"}`:                                                                                 "managedBy must be ray.io/kuberay-operator (this controller) or kueue.x-k8s.io/multikueue",
		`{` + head + `, "networkPolicy": {"mode": "DenyAllIngress", "head": {"egressRules": [{}]}}}`:                                          "spec.networkPolicy.head.egressRules: mode DenyAllIngress allows all egress",
	} {
		checkError(s.T, spec, want, s.Create(s.Context(), older("bad", spec), client.DryRunAll))
	}
	s.must(s.Get(s.Context(), client.ObjectKeyFromObject(c), c))
	if c.GetAPIVersion() != "ray.io/v1alpha1" {
		s.Errorf("it is read as %s", c.GetAPIVersion())
	}
	s.must(unstructured.SetNestedField(c.Object, "2.60.0", "spec", "rayVersion"))
	s.must(s.Update(s.Context(), c))
	tenant := rest.CopyConfig(s.config)
	tenant.Impersonate = rest.ImpersonationConfig{UserName: "tenant"}
	s.must(s.Create(s.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"ray.io"}, Resources: []string{"rayclusters"}, Verbs: []string{"create"}}}}))
	s.must(s.Create(s.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}}}))
	s.await("an author who may not create Pods is refused", func() bool {
		err := s.client(tenant).Create(s.Context(), older("tenant", `{`+head+`}`), client.DryRunAll)
		if err == nil {
			s.Fatal("the tenant creates Pods")
		}
		return strings.Contains(err.Error(), "you may not create pods in namespace default")
	})
}

// egressWithoutDNS writes policies with which Pods can or cannot resolve names.
func (s *rays) egressWithoutDNS() {
	const head = `"headGroupSpec": {"template": {"spec": {"containers": [{"name": "r"}]}}}, "workerGroupSpecs": [{"groupName": "g", "template": {"spec": {"containers": [{"name": "r"}]}}}]`
	const dns = `"egressRules": [{"ports": [{"protocol": "UDP", "port": 53}]}]`
	for policy, want := range map[string]string{
		`{}`:                         "spec.networkPolicy.head, spec.networkPolicy.worker: no egress rule allows UDP port 53",
		`{"mode": "DenyAllIngress"}`: "",
		`{"mode": "DenyAllEgress", "worker": {` + dns + `}}`:                                                                "spec.networkPolicy.head: no egress rule allows UDP port 53",
		`{"head": {` + dns + `}, "worker": {"egressRules": [{}]}}`:                                                          "",
		`{"head": {` + dns + `}, "workerGroups": [{"groupName": "g"}]}`:                                                     "spec.networkPolicy.workerGroups[g]: no egress rule allows UDP port 53",
		`{"head": {"egressRules": [{"ports": [{"port": 53}]}]}, "worker": {` + dns + `}}`:                                   "spec.networkPolicy.head: no egress rule allows UDP port 53",
		`{"head": {"egressRules": [{"ports": [{"protocol": "UDP", "port": 50, "endPort": 60}]}]}, "worker": {` + dns + `}}`: "",
		`{"head": {"egressRules": [{"ports": [{"protocol": "UDP", "port": "dns"}]}]}, "worker": {` + dns + `}}`:             "",
		`{"head": {"egressRules": [{"ports": [{"protocol": "UDP"}]}]}, "worker": {` + dns + `}}`:                            "",
		`{"mode": "DenyAllIngress", "workerGroups": [{"groupName": "other"}]}`:                                              "spec.networkPolicy.workerGroups[other]: has no effect, because there is no worker group of this name",
	} {
		c := s.raw("policies", `{`+head+`, "networkPolicy": `+policy+`}`)
		got := s.collectWarnings(func(as client.Client) error { return as.Create(s.Context(), c, client.DryRunAll) })
		if want == "" && len(got) > 0 || want != "" && !hasWarning(got, want) {
			s.Errorf("%s: warnings %v, want %q", policy, got, want)
		}
	}
	c := s.raw("policies", `{`+head+`}`)
	s.must(s.Create(s.Context(), c))
	s.must(unstructured.SetNestedMap(c.Object, map[string]any{}, "spec", "networkPolicy"))
	if got := s.collectWarnings(func(as client.Client) error { return as.Update(s.Context(), c) }); !hasWarning(got, "UDP port 53") {
		s.Errorf("changed: no warning, only %v", got)
	}
	s.must(unstructured.SetNestedField(c.Object, "2.60.0", "spec", "rayVersion"))
	if got := s.collectWarnings(func(as client.Client) error { return as.Update(s.Context(), c) }); len(got) > 0 {
		s.Errorf("not changed: %v", got)
	}
}

// raw is a cluster as a user writes it.
func (s *rays) raw(name, spec string) *unstructured.Unstructured {
	s.Helper()
	c := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ray.io/v1", "kind": "RayCluster"}}
	c.SetNamespace("default")
	c.SetName(name)
	var fields map[string]any
	s.must(json.Unmarshal([]byte(spec), &fields))
	c.Object["spec"] = fields
	return c
}

func (s *rays) managedBy() {
	kueue, ours, other := rayv1.ManagedByMultiKueue, rayv1.ManagedByThis, "someone.example/else"
	c := s.cluster("managed")
	c.Spec.ManagedBy = &other
	checkError(s.T, "another manager", "managedBy must be ray.io/kuberay-operator (this controller) or kueue.x-k8s.io/multikueue", s.Create(s.Context(), c))
	c.Spec.ManagedBy = &kueue
	s.must(s.Create(s.Context(), c))
	plain := s.cluster("unmanaged")
	s.must(s.Create(s.Context(), plain))
	c.Spec.ManagedBy = &ours
	const fixed = "managedBy cannot change; create another RayCluster"
	checkError(s.T, "changed", fixed, s.Update(s.Context(), c.DeepCopy(), client.DryRunAll))
	c.Spec.ManagedBy = nil
	checkError(s.T, "removed", fixed, s.Update(s.Context(), c.DeepCopy(), client.DryRunAll))
	plain.Spec.ManagedBy = &kueue
	checkError(s.T, "set", fixed, s.Update(s.Context(), plain.DeepCopy(), client.DryRunAll))
	plain.Spec.ManagedBy = &ours
	checkError(s.T, "the default is added", "", s.Update(s.Context(), plain))
	plain.Spec.ManagedBy = nil
	checkError(s.T, "the default is removed", "", s.Update(s.Context(), plain))
}

// ownClaimPolicy writes storage whose deletion policy has an effect or none.
func (s *rays) ownClaimPolicy() {
	const head = `"headGroupSpec": {"template": {"spec": {"containers": [{"name": "r"}]}}}`
	for storage, warns := range map[string]bool{
		`{"claimName": "mine", "deletionPolicy": "Retain"}`: true,
		`{"claimName": "mine"}`:                             false,
		`{"claimName": "", "deletionPolicy": "Retain"}`:     false,
		`{"deletionPolicy": "DeleteWithCluster"}`:           false,
	} {
		c := s.raw("claim", `{`+head+`, "gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": `+storage+`}}`)
		got := s.collectWarnings(func(as client.Client) error { return as.Create(s.Context(), c, client.DryRunAll) })
		if hasWarning(got, "storage.deletionPolicy: has no effect beside claimName") != warns {
			s.Errorf("%s: warnings %v", storage, got)
		}
	}
}

// collectWarnings returns the warnings of the API server about what do sends.
func (s *rays) collectWarnings(do func(client.Client) error) []string {
	s.Helper()
	recorder := &warningRecorder{}
	recorded := rest.CopyConfig(s.config)
	recorded.WarningHandler = recorder
	s.must(do(s.client(recorded)))
	return recorder.list()
}

// hasWarning reports whether a warning contains text.
func hasWarning(warnings []string, text string) bool {
	return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, text) })
}

// suspendsScaledGroup updates a cluster as KubeRay lets its users.
func (s *rays) suspendsScaledGroup() {
	c := s.cluster("scaled", 1)
	c.Spec.EnableInTreeAutoscaling = new(bool)
	*c.Spec.EnableInTreeAutoscaling = true
	s.must(s.Create(s.Context(), c))
	c.Spec.WorkerGroupSpecs[0].Suspend = new(bool)
	*c.Spec.WorkerGroupSpecs[0].Suspend = true
	if got := s.collectWarnings(func(as client.Client) error { return as.Update(s.Context(), c) }); !hasWarning(got, "spec.workerGroupSpecs[g].suspend: has no effect, because the autoscaler would create the Pods again") {
		s.Errorf("suspended: no warning, only %v", got)
	}
	c.Labels = map[string]string{"seen": "yes"}
	if got := s.collectWarnings(func(as client.Client) error { return as.Update(s.Context(), c) }); len(got) > 0 {
		s.Errorf("labeled: %v", got)
	}
}

// scheduler is a batch scheduler: it is named by a label, and there is none.
func (s *rays) scheduler() {
	c := s.cluster("scheduled")
	c.Labels = map[string]string{"ray.io/scheduler-name": "volcano"}
	if got := s.collectWarnings(func(as client.Client) error { return as.Create(s.Context(), c, client.DryRunAll) }); !hasWarning(got, "batch schedulers are not supported yet") {
		s.Errorf("no warning, only %v", got)
	}
}

// TestRayCluster_PolicyAndDefinition changes objects of the cluster.
func TestRayCluster_PolicyAndDefinition(t *testing.T) {
	t.Parallel()
	config := shareServer(t, flowServer).config
	t.Run("a cluster that was stored before there was a policy can be changed and deleted", func(t *testing.T) { adoptsACluster(t, newRays(t, config)) })
	t.Run("kinds that only KubeRay's operator reconciles get a warning", func(t *testing.T) { newRays(t, config).otherKinds() })
}

// otherKinds creates an object of each kind of KubeRay that has no controller here.
func (s *rays) otherKinds() {
	for plural, kind := range map[string]string{"rayjobs": "RayJob", "rayservices": "RayService", "raycronjobs": "RayCronJob"} {
		s.must(s.Create(s.Context(), rayDefinition(plural, kind)))
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("ray.io/v1")
		o.SetKind(kind)
		o.SetNamespace("default")
		o.SetName("other")
		want := "K8s4r runs no controller for " + kind + "; KubeRay's operator must"
		s.await(kind+" is served", func() bool { return s.Create(s.Context(), o.DeepCopy(), client.DryRunAll) == nil })
		if got := s.collectWarnings(func(as client.Client) error { return as.Create(s.Context(), o) }); !hasWarning(got, want) {
			s.Errorf("%s: created with the warnings %v", kind, got)
		}
		o.SetLabels(map[string]string{"seen": "yes"})
		if got := s.collectWarnings(func(as client.Client) error { return as.Update(s.Context(), o) }); len(got) > 0 {
			s.Errorf("%s: labeled with the warnings %v", kind, got)
		}
	}
}

// rayDefinition returns the definition of a kind of KubeRay, with any fields.
func rayDefinition(plural, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + ".ray.io"},
		"spec": map[string]any{
			"group": "ray.io", "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}

func adoptsACluster(t *testing.T, s *rays) {
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	s.must(s.Get(t.Context(), client.ObjectKey{Name: rayPolicy}, binding))
	s.must(s.Delete(t.Context(), binding))
	adopted := s.cluster("adopted", 1, 1, -1) // names that are not unique, and a number that is none
	adopted.Finalizers = []string{rayv1.FinalizerRedisCleanup}
	adopted.Spec.TLSOptions = &rayv1.TLSOptions{Enabled: new(bool)}
	*adopted.Spec.TLSOptions.Enabled = true
	s.await("no policy is in force", func() bool { return s.Create(t.Context(), adopted) == nil })
	s.must(s.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: rayPolicy}, Spec: binding.Spec}))
	s.await("the policy is in force", func() bool { return s.Create(t.Context(), s.cluster("probe", -1), client.DryRunAll) != nil })

	adopted.Status.Conditions = []metav1.Condition{{Type: rayv1.HeadPodReady, Status: metav1.ConditionFalse, Reason: "R", LastTransitionTime: metav1.Now()}}
	s.must(s.Status().Update(t.Context(), adopted))
	adopted.Labels = map[string]string{"seen": "yes"}
	s.must(s.Update(t.Context(), adopted))
	changed := adopted.DeepCopy()
	changed.Spec.RayVersion = "2.53.0"
	checkError(t, "edit", "several groups are named g", s.Update(t.Context(), changed))
	s.must(s.Delete(t.Context(), adopted))
	s.must(s.Get(t.Context(), client.ObjectKeyFromObject(adopted), adopted))
	adopted.Finalizers = nil
	s.must(s.Update(t.Context(), adopted))
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(adopted), adopted); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// createWithAccount creates an object. The API server looks service accounts of Pods up in a cache,
// which may not have one that was created just now.
func (s *rays) createWithAccount(o client.Object, opts ...client.CreateOption) (err error) {
	s.Helper()
	s.await("the service account is in the cache", func() bool {
		err = s.Create(s.Context(), o.DeepCopyObject().(client.Object), opts...)
		return err == nil || !strings.Contains(err.Error(), "error looking up service account")
	})
	return err
}

// TestRayCluster_ObjectsAreAccepted sends the API server all objects of each manifest
// that the builders are tested with.
func TestRayCluster_ObjectsAreAccepted(t *testing.T) {
	t.Parallel()
	s := newRays(t, share(t, podServer, onlyVCJob).config)
	s.must(s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}))
	s.must(s.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "scaler", Namespace: "fleet"}}))
	files, err := filepath.Glob("../../internal/controllers/raycluster/build/testdata/*.manifest.yaml")
	if err != nil || len(files) < 25 {
		t.Fatal(len(files), err)
	}
	s.await("the namespace has an account", func() bool {
		return s.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "default"}, &corev1.ServiceAccount{}) == nil
	})
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := s.in(t)
			settings, c, err := buildtest.Load(file)
			s.must(err)
			stored := c.DeepCopy()
			stored.UID = ""
			s.must(s.Create(t.Context(), stored))
			objects := buildtest.Objects(settings, c)
			// An account must exist before a Pod may name it.
			slices.SortStableFunc(objects, func(a, b client.Object) int { return first(b) - first(a) })
			for _, o := range objects {
				opts := []client.CreateOption{client.DryRunAll}
				if first(o) == 1 {
					opts = nil
					o.SetOwnerReferences(nil) // the garbage collector deletes what the cluster of the file owns
				}
				if err := s.createWithAccount(o, opts...); err != nil {
					t.Errorf("%T: %v", o, err)
				}
			}
		})
	}
}

func first(o client.Object) int {
	if _, account := o.(*corev1.ServiceAccount); account {
		return 1
	}
	return 0
}
