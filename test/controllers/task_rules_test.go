package controllers

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/internal/testkit"
)

// badFields are fields of a Task, and what the refusal contains.
var badFields = []struct {
	fields, want string
	isGroup      bool // the field is one of a TaskGroup instead of its tasks
}{
	{fields: `timeout: soon`, want: `timeout: must be a duration such as 90s`},
	{fields: `timeout: 500us`, want: `timeout: must be a duration such as 90s`},
	{fields: `timeout: ""`, want: `timeout: must be a duration such as 90s`},
	{fields: `killTimeout: 9999999h`, want: `killTimeout: must be a duration such as 90s`},
	{fields: `templates: [{destPath: x, sourcePath: a, embeddedTmpl: b}]`, want: `templates[]: set exactly one of sourcePath and embeddedTmpl`},
	{fields: `templates: [{destPath: x}]`, want: `templates[]: set exactly one of sourcePath and embeddedTmpl`},
	{fields: `driver: docker`, want: `driver docker needs config.dockerConfig`},
	{fields: `driver: java`, want: `driver java needs config.javaConfig`},
	{fields: `config: {dockerConfig: {image: x}}`, want: `drivers exec and raw_exec need config.execConfig`},
	{fields: `config: {execConfig: {command: x}, javaConfig: {jarPath: x}}`, want: `drivers exec and raw_exec need config.execConfig`},
	{fields: `env: {"A=B": x}`, want: `names of environment variables consist of`},
	{fields: `offlineSecrets: sealed`, want: `offlineSecrets: the task has no secretEnv`},
	{fields: `secretEnv: {A: {secretName: a, key: a}}, offlineSecrets: plain`, want: `offlineSecrets`},
	{fields: `resources: {memory: "1e19"}`, want: `memory 1e19 is more than 1Pi`},
	{fields: `constraints: [{lTarget: a, ltarget: b, operand: "="}]`, want: `constraints[]: set lTarget (or ltarget, not both)`, isGroup: true},
	{fields: `constraints: [{lTarget: a, rTarget: a, rtarget: b, operand: "="}]`, want: `constraints[]: set rTarget or rtarget, not both`, isGroup: true},
	{fields: `constraints: [{lTarget: "${robot.attr.nose}", rTarget: a, operand: "="}]`, want: `is not a valid target`, isGroup: true},
	{fields: `restartPolicy: {delay: x}`, want: `restartPolicy.delay: must be a duration`, isGroup: true},
	{fields: `restartPolicy: {interval: "-1s"}`, want: `restartPolicy.interval: must be a duration`, isGroup: true},
	{fields: `ephemeralDisk: {migrate: true}`, want: `ephemeralDisk: migrate is not supported`, isGroup: true},
}

// badTaskFields and badGroupFields are those of one of the kinds.
var (
	badTaskFields = map[string]string{
		`dispatchTimeout: 2h`:               `spec.dispatchTimeout: must be from 10s to 1h`,
		`dispatchTimeout: 1s`:               `spec.dispatchTimeout: must be from 10s to 1h`,
		`dispatchTimeout: x`:                `spec.dispatchTimeout: must be a duration`,
		`stopOnRobotAfter: x`:               `spec.stopOnRobotAfter: `,
		`stopOnRobotAfter: 5s`:              `spec.stopOnRobotAfter: is set by the controller`,
		`array: {indexes: "0-9"}`:           `spec.array: is set by the controller`,
		`array: {index: 3}`:                 `spec.array: is set by the controller`,
		`extraResources: {memory: "1Ki"}`:   `spec.extraResources: is set by the controller`,
		`secretEnv: {A B: {secretName: a}}`: `spec.secretEnv`,
	}
	badGroupFields = map[string]string{
		`array: {size: 3}, count: 2`: `spec: count: the array defines the number of tasks; omit count`,
		`array: {size: 3}, initTasks: [` + strings.Replace(harmless, "name: ok", "name: i", 1) + `]`: `spec: array: an array runs one task, without init tasks`,
		`array: {size: 3}, gang: true`:                     `spec: array: indexes neither start together nor share a directory`,
		`array: {size: 3}, ephemeralDisk: {sizeMB: 1}`:     `spec: array: indexes neither start together nor share a directory`,
		`array: {size: 3, indexes: "0-2"}`:                 `spec.array: set size or indexes, not both`,
		`array: {rangeSize: 2}`:                            `spec.array: set size, indexes or items`,
		`array: {size: 3, items: [a]}`:                     `spec.array: size must be the number of items`,
		`array: {size: 100001}`:                            `spec.array.size`,
		`array: {indexes: "0-1000000"}`:                    `spec.array.indexes`,
		`array: {indexes: all}`:                            `spec.array.indexes`,
		`gang: true, count: 129`:                           `spec: gang: a gang has at most 128 replicas`,
		`initTasks: [` + harmless + `]`:                    `spec: a name must not occur in both initTasks and tasks`,
		`initTasks: [{name: i, driver: exec, config: {}}]`: `spec.initTasks[]: drivers exec and raw_exec need config.execConfig`,
		`initTasks: [{name: i, timeout: x, driver: exec, config: {execConfig: {command: x}}}]`: `spec.initTasks[].timeout: must be a duration`,
		`reschedulePolicy: {delay: x}`:                                     `spec.reschedulePolicy.delay: must be a duration`,
		`reschedulePolicy: {interval: x}`:                                  `spec.reschedulePolicy.interval: must be a duration`,
		`reschedulePolicy: {maxDelay: x}`:                                  `spec.reschedulePolicy.maxDelay: must be a duration`,
		`update: {minHealthyTime: x}`:                                      `spec.update.minHealthyTime: must be a duration`,
		`placement: {affinity: [{}]}`:                                      `spec.placement.affinity[]: set exactly one of robotLabels and taskGroup`,
		`placement: {antiAffinity: [{robotLabels: {a: b}, taskGroup: g}]}`: `spec.placement.antiAffinity[]: set exactly one of robotLabels and taskGroup`,
	}
)

// A Task and a TaskGroup with owners, whose UIDs the API server does not check.
const (
	ownedTask  = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Task, metadata: {ownerReferences: [{apiVersion: robot.k8s4r.io/v1alpha1, kind: TaskGroup, name: x, uid: abc}]}, spec: ` + harmless + `}`
	ownedGroup = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: TaskGroup, metadata: {ownerReferences: [{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, name: x, uid: abc}]}, spec: {jobName: x, groupName: g, tasks: [` + harmless + `]}}`
)

// ownedWith returns an object whose spec has more fields.
func (s *space) ownedWith(manifest, fields string) *unstructured.Unstructured {
	s.Helper()
	o := s.object(manifest)
	s.addFields(o.Object["spec"], fields)
	return o
}

// ownedGroupWith returns a TaskGroup whose task has more fields.
func (s *space) ownedGroupWith(fields string) *unstructured.Unstructured {
	s.Helper()
	o := s.object(ownedGroup)
	s.addFields(o.Object["spec"].(map[string]any)["tasks"].([]any)[0], fields)
	return o
}

func (s *space) addFields(to any, fields string) {
	s.Helper()
	more := map[string]any{}
	s.must(yaml.Unmarshal([]byte("{"+fields+"}"), &more))
	maps.Copy(to.(map[string]any), more)
}

// TestAdmission_OwnersExcuseNothing has a tenant who claims that the Tasks and TaskGroups that the
// tenant creates are those of a Job.
func TestAdmission_OwnersExcuseNothing(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "excuses")
	s.bind("edits", "tenant", "k8s4r-edit")
	s.allow("tenant", "taskgroups", "create", "patch")
	tenant := s.as("tenant")
	awaitPolicies(t, s)
	submit := func(o *unstructured.Unstructured) error { return tenant.Create(t.Context(), o, client.DryRunAll) }
	testkit.EventuallyNoError(s, waitTimeout, "the rights are in force", func() error { return submit(s.object(ownedGroup)) })
	s.must(submit(s.object(ownedTask)))
	refuses := func(o *unstructured.Unstructured, fields, want string) {
		t.Helper()
		if err := submit(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with %s: %v, want %q", o.GetKind(), fields, err, want)
		}
	}
	for _, bad := range badFields {
		refuses(s.ownedWith(ownedTask, bad.fields), bad.fields, bad.want)
		if bad.isGroup {
			refuses(s.ownedWith(ownedGroup, bad.fields), bad.fields, bad.want)
		} else {
			refuses(s.ownedGroupWith(bad.fields), bad.fields, bad.want)
		}
	}
	for fields, want := range badTaskFields {
		refuses(s.ownedWith(ownedTask, fields), fields, want)
	}
	for fields, want := range badGroupFields {
		refuses(s.ownedWith(ownedGroup, fields), fields, want)
	}
}

// TestAdmission_ChangesOfTasks has a tenant who changes a Task that the manager has created.
func TestAdmission_ChangesOfTasks(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "changes")
	s.bind("edits", "tenant", "k8s4r-edit")
	tenant, manager := s.as("tenant"), s.as("system:serviceaccount:k8s4r-system:k8s4r-manager")
	awaitPolicies(t, s)
	const ofInitTask = `extraResources: {memory: "1Ki"}, stopOnRobotAfter: 5s`
	if err := tenant.Create(t.Context(), s.ownedWith(ownedTask, ofInitTask), client.DryRunAll); err == nil {
		t.Error("a tenant can create what the manager creates")
	}
	group := s.object(carriers["TaskGroup by hand"](harmless))
	s.must(s.Create(t.Context(), group))
	o := s.ownedWith(ownedTask, ofInitTask)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "robot.k8s4r.io/v1alpha1", Kind: "TaskGroup", Name: group.GetName(), UID: group.GetUID()}})
	s.must(manager.Create(t.Context(), o))
	testkit.EventuallyNoError(s, waitTimeout, "the tenant evicts it, which needs no right", func() error {
		return tenant.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"evictAttempt":1}}`)), client.DryRunAll)
	})
	for patch, want := range map[string]string{
		`{"env":{"A":"b"}}`:                   "",
		`{"env":{"A=B":"b"}}`:                 "spec.env: names of environment variables",
		`{"timeout":"soon"}`:                  "spec.timeout: must be a duration",
		`{"extraResources":{"memory":"2Ki"}}`: "spec.extraResources: is set by the controller",
		`{"array":{"indexes":"0-1"}}`:         "spec.array: is set by the controller",
		`{"stopOnRobotAfter":"10s"}`:          "spec.stopOnRobotAfter: is set by the controller",
		`{"config":{"execConfig":null}}`:      "drivers exec and raw_exec need config.execConfig",
	} {
		text := `{"metadata":{"labels":{"robot.k8s4r.io/revision":"other"}},"spec":` + patch + `}`
		err := tenant.Patch(t.Context(), o.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", patch, err, want)
		}
	}
}
