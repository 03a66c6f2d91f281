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
		{"as installed", robots, nil, Finding{OK, "definition " + robots, "is K8s4r's", ""}},
		{"not established", robots, changes{setUnestablished},
			Finding{Fail, "definition " + robots, "is not established: the API server does not serve it", "kubectl describe crd " + robots + " says why"}},
		{"of an older version", robots, changes{dropFields("drain", "unschedulable")},
			Finding{Warn, "definition " + robots, "is that of another version of K8s4r; it drops these fields, which then do nothing: .spec.drain, .spec.unschedulable", install}},
		{"of our own group without labels", robots, changes{removeLabels}, Finding{OK, "definition " + robots, "is K8s4r's", ""}},
		{"of another operator, complete", flows, changes{removeLabels},
			Finding{OK, "definition " + flows, "is somebody else's; it has every field that K8s4r reads", ""}},
		{"of another operator, with missing fields", flows, changes{removeLabels, dropFields("suspend")},
			Finding{Warn, "definition " + flows, "is somebody else's; it drops these fields, which then do nothing: .spec.suspend",
				"do without these fields, or have its owner remove it and then " + install}},
		{"of another operator, not established", flows, changes{removeLabels, setUnestablished},
			Finding{Fail, "definition " + flows, "is not established: the API server does not serve it", "kubectl describe crd " + flows + " says why"}},
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
			want = append(want, Finding{Fail, "definition " + name, "is missing: the controllers of that kind do not start", install})
			continue
		case unreadable:
			want = append(want, unknownFor("definition "+name))
		default:
			want = append(want, Finding{OK, "definition " + name, "is K8s4r's", ""})
		}
		installed = append(installed, crd)
	}
	equalFindings(t, checkDefinitions(t.Context(), newCluster(t, hooks, installed...)), want...)
}
