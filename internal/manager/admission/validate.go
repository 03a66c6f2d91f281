package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/core/flow/graph"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// PathJobFlows is the path for JobFlows, as in Volcano.
const PathJobFlows = "/jobflows/validate"

// PathCronJobFlows is the path for CronJobFlows.
const PathCronJobFlows = "/cronjobflows/validate"

// newHandler returns the handler of admission requests.
func newHandler(a *actionHandler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(pathChange, &admission.Webhook{Handler: admission.HandlerFunc(a.handleChange)})
	mux.Handle(pathDeletion, &admission.Webhook{Handler: admission.HandlerFunc(a.handleDeletion)})
	mux.Handle(PathJobFlows, &admission.Webhook{Handler: admission.HandlerFunc(handleJobFlow)})
	mux.Handle(PathJobs, &admission.Webhook{Handler: admission.HandlerFunc(handleJob)})
	mux.Handle(PathCronJobFlows, &admission.Webhook{Handler: admission.HandlerFunc(handleCronJobFlow)})
	return mux
}

// handleJobFlow validates a JobFlow.
func handleJobFlow(_ context.Context, r admission.Request) admission.Response {
	flow, had := &flowv1.JobFlow{}, &flowv1.JobFlow{}
	return validateRequest(r, flow, had, func() bool { return equality.Semantic.DeepEqual(flow.Spec, had.Spec) }, func() error { return ValidateJobFlow(flow) })
}

// handleCronJobFlow validates a CronJobFlow.
func handleCronJobFlow(_ context.Context, r admission.Request) admission.Response {
	cron, had := &cronv1.CronJobFlow{}, &cronv1.CronJobFlow{}
	return validateRequest(r, cron, had, func() bool { return equality.Semantic.DeepEqual(cron.Spec, had.Spec) }, func() error { return cronjobflow.Validate(&cron.Spec) })
}

// validateRequest validates an object that is created or whose spec changes. Other updates are
// allowed, so that invalid objects from before the webhook can still be labeled and deleted.
func validateRequest(r admission.Request, object, old client.Object, isSpecEqual func() bool, validate func() error) admission.Response {
	if err := json.Unmarshal(r.Object.Raw, object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if len(r.OldObject.Raw) > 0 {
		if err := json.Unmarshal(r.OldObject.Raw, old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if object.GetDeletionTimestamp() != nil || isSpecEqual() {
			return admission.Allowed("")
		}
	}
	if err := validate(); err != nil {
		return admission.Denied(err.Error())
	}
	return admission.Allowed("")
}

// ValidateJobFlow validates a flow: the graph, with Volcano's messages, and the steps. The jobflow
// controller repeats the validation, except for the names.
func ValidateJobFlow(flow *flowv1.JobFlow) error {
	return errors.Join(graph.Validate(flow.Spec.Flows), stepjob.CheckFlow(&flow.Spec), checkNames(flow))
}

// checkNames returns an error if the Job of a step would have an invalid name. A flow with
// generateName is not checked, because its name is not known yet.
func checkNames(flow *flowv1.JobFlow) error {
	for _, step := range flow.Spec.Flows {
		name := flow.Name + "-" + step.Name
		if wrong := validation.IsDNS1123Subdomain(name); flow.Name != "" && len(wrong) > 0 {
			return fmt.Errorf("spec.flows[%s].name: its Job would be called %q, which is not a valid name: %s; choose another step name", step.Name, name, strings.Join(wrong, ", "))
		}
	}
	return nil
}
