package controllers

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// What leaves the bounds of other tasks, and what the refusal names.
var privileged = map[string]struct{ task, want string }{
	"raw_exec":          {`{name: t, driver: raw_exec, config: {execConfig: {command: x}}}`, `privileges.robot.k8s4r.io "raw_exec"`},
	"root":              {`{name: t, driver: exec, user: "0:0", config: {execConfig: {command: x}}}`, `privileges.robot.k8s4r.io "root"`},
	"host-paths":        {`{name: t, driver: docker, config: {dockerConfig: {image: x, volumes: ["/:/host"]}}}`, `privileges.robot.k8s4r.io "host-paths"`},
	"user:pilot":        {`{name: t, driver: exec, user: pilot, config: {execConfig: {command: x}}}`, `privileges.robot.k8s4r.io "user:pilot"`},
	"user:1000":         {`{name: t, driver: java, user: "1000", config: {javaConfig: {jarPath: x}}}`, `privileges.robot.k8s4r.io "user:1000"`},
	"root-container":    {`{name: t, driver: docker, user: "root:root", config: {dockerConfig: {image: x}}}`, `privileges.robot.k8s4r.io "root-container"`},
	"host-network":      {`{name: t, driver: docker, config: {dockerConfig: {image: x, networkMode: host}}}`, `privileges.robot.k8s4r.io "host-network"`},
	"container-network": {`{name: t, driver: docker, config: {dockerConfig: {image: x, networkMode: "container:k8s4r-1-1"}}}`, `privileges.robot.k8s4r.io "container-network"`},
}

// carriers are the kinds that bring a task to a robot.
var carriers = map[string]func(task string) string{
	"Job": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, spec: {taskGroups: [{name: g, tasks: [` + task + `]}]}}`
	},
	"Job with init tasks": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, spec: {taskGroups: [{name: g, initTasks: [` + task + `], tasks: [` + other + `]}]}}`
	},
	"JobTemplate": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: JobTemplate, spec: {taskGroups: [{name: g, tasks: [` + task + `]}]}}`
	},
	"TaskGroup by hand": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: TaskGroup, spec: {jobName: x, groupName: g, tasks: [` + task + `]}}`
	},
	"TaskGroup with init tasks": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: TaskGroup, spec: {jobName: x, groupName: g, initTasks: [` + task + `], tasks: [` + other + `]}}`
	},
	"TaskGroup with an owner reference": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: TaskGroup, metadata: {ownerReferences: [{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, name: x, uid: abc}]}, spec: {jobName: x, groupName: g, tasks: [` + task + `]}}`
	},
	"Task by hand": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Task, spec: ` + task + `}`
	},
	"Task with an owner reference": func(task string) string {
		return `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Task, metadata: {ownerReferences: [{apiVersion: robot.k8s4r.io/v1alpha1, kind: TaskGroup, name: x, uid: abc}]}, spec: ` + task + `}`
	},
	"patch of a JobFlow": func(task string) string {
		return `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, spec: ` + patchOf(task) + `}`
	},
	"patch of a CronJobFlow": func(task string) string {
		return `{apiVersion: flow.k8s4r.io/v1alpha1, kind: CronJobFlow, spec: {schedule: "0 0 1 1 *", jobFlowTemplate: {spec: ` + patchOf(task) + `}}}`
	},
}

const (
	harmless = `{name: ok, driver: exec, user: "", config: {execConfig: {command: x}}}`
	other    = `{name: other, driver: exec, config: {execConfig: {command: x}}}`
)

func patchOf(task string) string {
	return `{jobRetainPolicy: retain, flows: [{name: a, templateRef: {apiGroup: robot.k8s4r.io}, patch: {jobSpec: {taskGroups: [{name: g, tasks: [` + task + `]}]}}}]}`
}

// TestAdmission_PrivilegesAreOffByDefault has a tenant who may edit a namespace, and nothing more.
func TestAdmission_PrivilegesAreOffByDefault(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "privileges")
	s.bind("edits", "tenant", "k8s4r-edit")
	s.bind("edits-too", "trusted", "k8s4r-edit")
	s.bind("trusts", "trusted", "k8s4r-privileged-tasks")
	for _, user := range []string{"tenant", "trusted"} { // no role of ours lets people make TaskGroups
		s.allow(user, "taskgroups", "create", "patch")
	}
	tenant, trusted := s.as("tenant"), s.as("trusted")
	raw := carriers["Job"](privileged["raw_exec"].task)
	awaitPolicies(t, s)
	testkit.EventuallyNoError(s, waitTimeout, "the rights are in force, of which this is the last", func() error {
		return s.submit(trusted, carriers["TaskGroup by hand"](harmless))
	})
	for kind, manifest := range carriers {
		t.Run(kind, func(t *testing.T) {
			if err := s.submit(tenant, manifest(harmless)); err != nil {
				t.Errorf("a harmless one: %v", err)
			}
			for name, p := range privileged {
				if err := s.submit(tenant, manifest(p.task)); err == nil || !strings.Contains(err.Error(), p.want) || !strings.Contains(err.Error(), "in namespace privileges") {
					t.Errorf("%s without the permission: %v", name, err)
				}
				if err := s.submit(trusted, manifest(p.task)); err != nil {
					t.Errorf("%s with the permission: %v", name, err)
				}
			}
		})
	}
	t.Run("a TaskGroup that is changed", func(t *testing.T) {
		g := s.object(carriers["TaskGroup by hand"](harmless))
		s.must(tenant.Create(t.Context(), g))
		patch := client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/spec/tasks/0/driver","value":"raw_exec"}]`))
		if err := tenant.Patch(t.Context(), g.DeepCopy(), patch); err == nil || !strings.Contains(err.Error(), `spec.tasks[].driver of ok: raw_exec`) {
			t.Errorf("without the permission: %v", err)
		}
		if err := trusted.Patch(t.Context(), g.DeepCopy(), patch); err != nil {
			t.Errorf("with the permission: %v", err)
		}
	})
	t.Run("the meta of a privileged command", func(t *testing.T) {
		j := s.object(raw)
		s.must(trusted.Create(t.Context(), j))
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"meta":{"script":"mine"}}}`))
		if err := tenant.Patch(t.Context(), j.DeepCopy(), patch); err == nil || !strings.Contains(err.Error(), privileged["raw_exec"].want) {
			t.Errorf("without the permission: %v", err)
		}
		if err := trusted.Patch(t.Context(), j.DeepCopy(), patch); err != nil {
			t.Errorf("with the permission: %v", err)
		}
	})
	t.Run("a privileged Task that waits", func(t *testing.T) {
		waiting := s.object(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Task, spec: ` + privileged["raw_exec"].task + `}`)
		s.must(trusted.Create(t.Context(), waiting))
		for _, spec := range []string{`"env":{"LD_PRELOAD":"mine"}`, `"meta":{"script":"mine"}`, `"templates":[{"embeddedTmpl":"mine","destPath":"run"}]`, `"artifacts":[{"getterSource":"http://mine"}]`} {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"robot.k8s4r.io/revision":"other"}},"spec":{`+spec+`}}`))
			if err := tenant.Patch(t.Context(), waiting.DeepCopy(), patch, client.DryRunAll); err == nil || !strings.Contains(err.Error(), privileged["raw_exec"].want) {
				t.Errorf("%s without the permission: %v", spec, err)
			}
			if err := trusted.Patch(t.Context(), waiting.DeepCopy(), patch, client.DryRunAll); err != nil {
				t.Errorf("%s with the permission: %v", spec, err)
			}
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"targetRobot":"r1"}}`))
		if err := tenant.Patch(t.Context(), waiting.DeepCopy(), patch, client.DryRunAll); err != nil {
			t.Errorf("its target robot without the permission: %v", err)
		}
	})
	t.Run("who may not submit it may pause it", func(t *testing.T) {
		j := s.object(raw)
		s.must(trusted.Create(t.Context(), j))
		for _, patch := range []string{`{"spec":{"priority":7}}`, `{"metadata":{"labels":{"a":"b"}}}`} {
			if err := tenant.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
				t.Errorf("%s: %v", patch, err)
			}
		}
	})
}

// TestAdmission_UsersCannotJoinReplicas has a tenant who may edit a namespace in which another user has
// a task with privileges. Tasks of a replica share files on their robot.
func TestAdmission_UsersCannotJoinReplicas(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "replicas")
	s.bind("edits", "tenant", "k8s4r-edit")
	tenant := s.as("tenant")
	awaitPolicies(t, s)
	const task = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Task, metadata: {labels: {taskindex: "0"}}, spec: {taskGroupName: theirs, name: ok, driver: exec, config: {execConfig: {command: x}}}}`
	group := s.object(carriers["TaskGroup by hand"](privileged["raw_exec"].task))
	s.must(s.Create(t.Context(), group))
	ofReplica := func(controls bool) *unstructured.Unstructured {
		o := s.object(task)
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "robot.k8s4r.io/v1alpha1", Kind: "TaskGroup", Name: group.GetName(), UID: group.GetUID(), Controller: &controls}})
		return o
	}
	testkit.EventuallyNoError(s, waitTimeout, "the rights are in force", func() error { return tenant.Create(t.Context(), s.object(task)) })
	own, theirs := ofReplica(false), ofReplica(true)
	s.must(tenant.Create(t.Context(), own))
	s.must(s.Create(t.Context(), theirs))
	joining := own.DeepCopy()
	joining.SetOwnerReferences(theirs.GetOwnerReferences())
	moved := theirs.DeepCopy()
	moved.SetLabels(map[string]string{"taskindex": "1"})
	for name, err := range map[string]error{
		"creating a task of the replica": tenant.Create(t.Context(), ofReplica(true), client.DryRunAll),
		"adding a task to it":            tenant.Update(t.Context(), joining, client.DryRunAll),
		"moving a task to another one":   tenant.Update(t.Context(), moved, client.DryRunAll),
	} {
		if err == nil || !strings.Contains(err.Error(), "you may not create taskgroups.robot.k8s4r.io in namespace replicas") {
			t.Errorf("%s: %v", name, err)
		}
	}
	evicted := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"evictAttempt":1},"metadata":{"labels":{"a":"b"}}}`))
	if err := tenant.Patch(t.Context(), theirs, evicted, client.DryRunAll); err != nil {
		t.Errorf("evicting a task: %v", err)
	}
}

// as returns a client that acts as another user.
func (s *space) as(user string, groups ...string) client.Client {
	s.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	if config.WarningHandler == nil {
		config.WarningHandler = rest.NoWarnings{}
	}
	c, err := client.New(config, client.Options{Scheme: manager.NewScheme()})
	s.must(err)
	return c
}

func (s *space) bind(name, user, role string) {
	s.Helper()
	s.must(s.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// allow grants a user verbs on a resource of ours in this namespace, such as
// robots, or robots/rover-1 for one of them.
func (s *space) allow(user, resource string, verbs ...string) {
	s.Helper()
	s.allowIn(user, v1alpha1.GroupVersion.Group+"/"+resource, verbs...)
}

// allowIn grants a user verbs on a resource of any group in this namespace, such as
// flow.volcano.sh/jobflows, or robot.k8s4r.io/robots/rover-1 for one of them.
func (s *space) allowIn(user, resource string, verbs ...string) {
	s.Helper()
	group, resource, _ := strings.Cut(resource, "/")
	rule := rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: verbs}
	resource, one, named := strings.Cut(resource, "/")
	rule.Resources = []string{resource}
	if named {
		rule.ResourceNames = []string{one}
	}
	name := strings.Join(append([]string{user, group, resource, one}, verbs...), "-")
	s.must(s.Create(s.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Rules: []rbacv1.PolicyRule{rule}}))
	s.must(s.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// bindEverywhere grants a user a role in all namespaces.
func (s *space) bindEverywhere(user, role string) {
	s.Helper()
	s.must(s.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// object is a manifest in this namespace, with a name that the API server finds.
func (s *space) object(manifest string) *unstructured.Unstructured {
	s.Helper()
	o := &unstructured.Unstructured{}
	s.must(yaml.Unmarshal([]byte(manifest), &o.Object))
	o.SetNamespace(s.name)
	o.SetGenerateName("p-")
	return o
}

// submit returns the response of admission to a manifest.
func (s *space) submit(as client.Client, manifest string) error {
	return as.Create(context.Background(), s.object(manifest), client.DryRunAll)
}
