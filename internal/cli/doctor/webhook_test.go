package doctor

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

func TestCheckWebhook_ExplainsResponse(t *testing.T) {
	flows := schema.GroupResource{Group: "flow.volcano.sh", Resource: "jobflows"}
	unreachable := apierrors.NewInternalError(errors.New(`failed calling webhook "validatejobflow.volcano.sh": connection refused`))
	invalid := apierrors.NewBadRequest("unexpected")
	for _, c := range []struct {
		name string
		err  error
		want Finding
	}{
		{"the webhook rejects the cycle", apierrors.NewForbidden(flows, "", errors.New(`admission webhook "validatejobflow.volcano.sh" denied the request: jobflow Flow is not DAG`)),
			Finding{OK, "webhook", "answers, and rejects a JobFlow whose steps depend on each other", ""}},
		{"no webhook", nil, Finding{Warn, "webhook", "JobFlows are not validated when they are created: a dependency cycle only shows in the JobFlow's conditions",
			"kubectl apply -f config/webhook, and start k8s4r-manager with --webhook-bind-address; k8s4r up does both"}},
		{"the webhook is unreachable", unreachable, Finding{Fail, "webhook", "does not answer, so no JobFlow can be created: " + unreachable.Error(),
			"check that k8s4r-manager is ready and that the API server reaches its Service; to run without the webhook: kubectl delete validatingwebhookconfiguration k8s4r-jobflows"}},
		{"the kind is not served", apierrors.NewNotFound(flows, ""), Finding{Fail, "webhook", "cannot be tested: the JobFlow CRD is not installed", installCommand}},
		{"the kind is not known to the client", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "flow.volcano.sh", Kind: "JobFlow"}},
			Finding{Fail, "webhook", "cannot be tested: the JobFlow CRD is not installed", installCommand}},
		{"the namespace does not exist", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "mine"),
			Finding{Warn, "webhook", "cannot be tested: namespace mine does not exist", "select another with --namespace"}},
		{"a missing permission", errForbidden, unknownFor("webhook")},
		{"any other error", invalid, Finding{Warn, "webhook", "cannot be checked: unexpected", "try again when the API server answers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			hooks := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return c.err }}
			equalFindings(t, checkWebhook(t.Context(), newCluster(t, hooks)), c.want)
		})
	}
}

func TestCheckWebhook_SendsCycleWithDryRun(t *testing.T) {
	var sent *flowv1.JobFlow
	cluster := newCluster(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		sent = o.DeepCopyObject().(*flowv1.JobFlow)
		applied := (&client.CreateOptions{}).ApplyOptions(opts)
		if len(applied.DryRun) != 1 || applied.DryRun[0] != "All" {
			t.Errorf("dry run is %q, so the workflow would be stored", applied.DryRun)
		}
		return c.Create(ctx, o, opts...)
	}})
	checkWebhook(t.Context(), cluster)
	if sent == nil || sent.Namespace != "mine" || sent.Name != "" || sent.GenerateName != "k8s4r-doctor-" {
		t.Fatalf("sent %+v", sent)
	}
	after := map[string]string{}
	for _, step := range sent.Spec.Flows {
		after[step.Name] = step.DependsOn.Targets[0]
	}
	if len(after) != 2 || after["a"] != "b" || after["b"] != "a" {
		t.Errorf("the steps %v are no cycle", after)
	}
	var left flowv1.JobFlowList
	if err := cluster.List(t.Context(), &left); err != nil || len(left.Items) != 0 {
		t.Errorf("%d workflows are left over (%v)", len(left.Items), err)
	}
}
