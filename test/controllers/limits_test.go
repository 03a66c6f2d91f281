package controllers

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/testkit"
)

// excessive are objects with a number beyond its maximum, and what the refusal names.
var excessive = map[string]struct{ manifest, want string }{
	"replicas of a task":     {vcjobManifest(`replicas: 2147483647`), "replicas"},
	"minAvailable of a task": {vcjobManifest(`replicas: 1, minAvailable: 2147483647`), "minAvailable"},
	"partitions":             {vcjobManifest(`replicas: 4, partitionPolicy: {totalPartitions: 2147483647, partitionSize: 1}`), "totalPartitions"},
	"Pods of a Job":          {strings.Replace(vcjobManifest(`replicas: 100000`), "tasks: [", "tasks: ["+strings.Join(tasksOf(10, 100_000), ", ")+", ", 1), "1100000 Pods in total, at most 1000000 are allowed"},
	"replicas of a group":    {rayManifest(`replicas: 2147483647`), "replicas"},
	"minReplicas":            {rayManifest(`minReplicas: 2147483647`), "minReplicas"},
	"hosts of a replica":     {rayManifest(`numOfHosts: 2147483647`), "numOfHosts"},
	"Pods of a cluster":      {rayManifest(`replicas: 1000, numOfHosts: 4096`), "4096000 worker Pods in total, at most 1000000 are allowed"},
}

func vcjobManifest(task string) string {
	return `{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [{name: t, ` + task + `, template: {spec: {containers: [{name: c, image: x}]}}}]}}`
}

func tasksOf(n, replicas int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{name: t%d, replicas: %d, template: {spec: {containers: [{name: c, image: x}]}}}`, i, replicas)
	}
	return all
}

func rayManifest(group string) string {
	for field, otherwise := range map[string]string{"minReplicas": "0", "maxReplicas": "2147483647"} {
		if !strings.Contains(group, field) {
			group += ", " + field + ": " + otherwise
		}
	}
	return `{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {template: {spec: {containers: [{name: ray, image: ray}]}}}, workerGroupSpecs: [{groupName: g, ` +
		group + `, template: {spec: {containers: [{name: ray, image: ray}]}}}]}}`
}

// TestAdmission_NumbersHaveMaxima has a tenant who may edit a namespace, and writes 2^31-1.
func TestAdmission_NumbersHaveMaxima(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "maxima")
	s.bind("edits", "tenant", "edit")
	tenant := s.as("tenant")
	awaitPolicies(t, s)
	testkit.EventuallyNoError(s, waitTimeout, "the tenant may create RayClusters", func() error {
		return s.submit(tenant, rayManifest(`replicas: 0`))
	})
	for name, c := range excessive {
		if err := s.submit(tenant, c.manifest); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	robots := `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, spec: {taskGroups: [{name: g, count: 1000000, tasks: [` + harmless + `, ` + other + `]}]}}`
	if err := s.submit(tenant, robots); err == nil || !strings.Contains(err.Error(), "spec.taskGroups: the Job has 2000000 tasks in total, at most 1000000 are allowed") {
		t.Errorf("tasks of a Job: %v", err)
	}
}

// TestAdmission_MaximaOfForeignDefinitions evaluates the policies on kinds whose schema has no
// maximum, like those of another operator.
func TestAdmission_MaximaOfForeignDefinitions(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "foreign-maxima")
	s.createLoose("Job", "jobs")
	s.createLoose("RayCluster", "rayclusters")
	s.copyLimits()
	awaitPolicies(t, s)
	for name, c := range excessive {
		o := s.object(c.manifest)
		o.SetAPIVersion(looseGroup + "/v1")
		testkit.Eventually(s, waitTimeout, "the policies are in force for "+name, func() bool {
			err := s.Create(t.Context(), o.DeepCopy(), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), c.want) && strings.Contains(err.Error(), "loose-k8s4r-limits")
		})
	}
	for _, manifest := range []string{vcjobManifest(`replicas: 100000`), rayManifest(`replicas: 100000`), `{kind: Job}`, `{kind: RayCluster}`} {
		o := s.object(manifest)
		o.SetAPIVersion(looseGroup + "/v1")
		if err := s.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", manifest, err)
		}
	}
}

const looseGroup = "loose.k8s4r.test"

// createLoose creates a definition without a schema.
func (s *space) createLoose(kind, plural string) {
	s.Helper()
	crd := s.object(fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.%[3]s}, spec: {
		group: %[3]s, scope: Namespaced, names: {kind: %[1]s, plural: %[2]s, singular: %[4]s, listKind: %[1]sList},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`,
		kind, plural, looseGroup, strings.ToLower(kind)))
	crd.SetNamespace("")
	crd.SetGenerateName("")
	s.must(s.Create(s.Context(), crd))
}

// copyLimits creates copies of the policies for the definitions without a schema.
func (s *space) copyLimits() {
	s.Helper()
	data, err := config.FS.ReadFile("admission/limits.yaml")
	s.must(err)
	for _, text := range strings.Split(string(data), "\n---\n") {
		for _, group := range []string{"batch.volcano.sh", "ray.io"} {
			text = strings.ReplaceAll(text, "apiGroups: ["+group+"]\n        apiVersions: [v1alpha1]", "apiGroups: ["+looseGroup+"]\n        apiVersions: [v1]")
			text = strings.ReplaceAll(text, "apiGroups: ["+group+"]", "apiGroups: ["+looseGroup+"]")
		}
		o := s.object(strings.ReplaceAll(text, "k8s4r-limits", "loose-k8s4r-limits"))
		o.SetNamespace("")
		o.SetGenerateName("")
		s.must(s.Create(s.Context(), o))
	}
}
