package doctor

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// checkWebhook creates, with dry run, a workflow whose two steps depend on each other. No schema
// rejects it, only the webhook.
func checkWebhook(ctx context.Context, c Cluster) []Finding {
	const check = "webhook"
	after := func(name string) *flowv1.DependsOn { return &flowv1.DependsOn{Targets: []string{name}} }
	trial := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{GenerateName: "k8s4r-doctor-", Namespace: c.Namespace}}
	trial.Spec.Flows = []flowv1.Flow{{Name: "a", DependsOn: after("b")}, {Name: "b", DependsOn: after("a")}}
	err := c.Create(ctx, trial, client.DryRunAll)
	switch {
	case err == nil:
		return newProblem(Warn, check, "JobFlows are not validated when they are created: a dependency cycle only shows in the JobFlow's conditions",
			"kubectl apply -f config/webhook, and start k8s4r-manager with --webhook-bind-address; k8s4r up does both")
	case strings.Contains(err.Error(), "failed calling webhook"):
		return newProblem(Fail, check, fmt.Sprintf("does not answer, so no JobFlow can be created: %v", err),
			"check that k8s4r-manager is ready and that the API server reaches its Service; to run without the webhook: kubectl delete validatingwebhookconfiguration k8s4r-jobflows")
	case strings.Contains(err.Error(), "is not DAG"):
		return newOK(check, "answers, and rejects a JobFlow whose steps depend on each other")
	case apierrors.IsNotFound(err) && !strings.Contains(err.Error(), "namespaces") || meta.IsNoMatchError(err):
		return newProblem(Fail, check, "cannot be tested: the JobFlow CRD is not installed", installCommand)
	case apierrors.IsNotFound(err):
		return newProblem(Warn, check, fmt.Sprintf("cannot be tested: namespace %s does not exist", c.Namespace), "select another with --namespace")
	}
	return newUnknown(check, err)
}
