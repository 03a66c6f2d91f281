package doctor

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// removeLabels makes a shared definition another operator's.
func removeLabels(crd *unstructured.Unstructured) { crd.SetLabels(nil) }

// dropFields returns a change that removes fields of spec from the schema.
func dropFields(fields ...string) func(*unstructured.Unstructured) {
	return func(crd *unstructured.Unstructured) {
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, f := range fields {
			unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", f)
		}
		_ = unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
	}
}

// setUnestablished makes the API server not serve the kind.
func setUnestablished(crd *unstructured.Unstructured) {
	crd.Object["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "False"},
	}}
}

func TestCompareDefinition_ReportsDifference(t *testing.T) {
	const flows, robots = "jobflows.flow.volcano.sh", "robots.robot.k8s4r.io"
	type changes = []func(*unstructured.Unstructured)
	for _, c := range []struct {
		name, crd string
		changes   changes
		want      Finding
	}{
		{"as installed", robots, nil, Finding{OK, "CRD " + robots, "is from K8s4r", ""}},
		{"not established", robots, changes{setUnestablished},
			Finding{Fail, "CRD " + robots, "is not established: the API server does not serve this kind", "see the conditions: kubectl describe crd " + robots}},
		{"of an older version", robots, changes{dropFields("drain", "unschedulable")},
			Finding{Warn, "CRD " + robots, "is from another version of K8s4r; its schema lacks these fields, which are dropped: .spec.drain, .spec.unschedulable", installCommand}},
		{"of our own group without labels", robots, changes{removeLabels}, Finding{OK, "CRD " + robots, "is from K8s4r", ""}},
		{"of another operator, complete", flows, changes{removeLabels},
			Finding{OK, "CRD " + flows, "was not installed by K8s4r; its schema has all fields that K8s4r reads", ""}},
		{"of another operator, with missing fields", flows, changes{removeLabels, dropFields("suspend")},
			Finding{Warn, "CRD " + flows, "was not installed by K8s4r; its schema lacks these fields, which are dropped: .spec.suspend",
				"leave these fields out, or have its owner delete the CRD, with all objects of the kind, and then " + installCommand}},
		{"of another operator, not established", flows, changes{removeLabels, setUnestablished},
			Finding{Fail, "CRD " + flows, "is not established: the API server does not serve this kind", "see the conditions: kubectl describe crd " + flows}},
	} {
		t.Run(c.name, func(t *testing.T) {
			equalFindings(t, compareDefinition(definition(t, c.crd), definition(t, c.crd, c.changes...), nil), c.want)
		})
	}
}

func TestCheckDefinitions_ReportsMissingAndUnreadableDefinitions(t *testing.T) {
	const missing, unreadable = "robots.robot.k8s4r.io", "tasks.robot.k8s4r.io"
	hooks := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name == unreadable {
			return errForbidden
		}
		return c.Get(ctx, key, o, opts...)
	}}
	var installed []client.Object
	var want []Finding
	for _, crd := range definitions(t) {
		switch name := crd.GetName(); name {
		case missing:
			want = append(want, Finding{Fail, "CRD " + name, "is not installed: the controllers of this kind do not start", installCommand})
			continue
		case unreadable:
			want = append(want, unknownFor("CRD "+name))
		default:
			want = append(want, Finding{OK, "CRD " + name, "is from K8s4r", ""})
		}
		installed = append(installed, crd)
	}
	equalFindings(t, checkDefinitions(t.Context(), newCluster(t, hooks, installed...)), want...)
}
