package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/jobtemplate"
	"k8s4r.io/k8s4r/internal/controllers/maintenancewindow"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/robotidentity"
	"k8s4r.io/k8s4r/internal/controllers/rollout"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
)

// CommonRole is the ClusterRole that the manager needs whatever controllers it runs.
const CommonRole = "k8s4r-manager"

// feature is a set of controllers with a ClusterRole of their own in config/rbac.
type feature struct {
	role        string
	controllers []string
	// writes is the resource whose status the controllers update, so that the role can be checked.
	writes schema.GroupResource
}

var features = []feature{
	{CommonRole + "-robots", []string{job.Name, taskgroup.Name, task.Name, robot.Name, robotidentity.Name, rollout.Name, maintenancewindow.Name}, v1alpha1.GroupVersion.WithResource("robots").GroupResource()},
	{CommonRole + "-flows", []string{jobflow.Name, jobtemplate.Name, cronjobflow.Name}, flowv1.GroupVersion.WithResource("jobflows").GroupResource()},
	{CommonRole + "-vcjob", []string{vcjob.Name}, batchv1.GroupVersion.WithResource("jobs").GroupResource()},
	{CommonRole + "-raycluster", []string{raycluster.Name}, rayv1.GroupVersion.WithResource("rayclusters").GroupResource()},
}

// RolesOf returns the ClusterRoles besides CommonRole that a manager with these controllers needs.
// If controllers is empty, it runs all. The controllers archive and retention read and delete what the
// others do.
func RolesOf(controllers []string) []string {
	var roles []string
	for _, f := range featuresOf(selection(Config{Controllers: controllers}.withDefaults().Controllers)) {
		roles = append(roles, f.role)
	}
	return roles
}

// featuresOf returns the features with a selected controller.
func featuresOf(chosen selection) []feature {
	return slices.DeleteFunc(slices.Clone(features), func(f feature) bool { return !slices.ContainsFunc(f.controllers, chosen.isSelected) })
}

// newRoleAdvice returns a check that reports features whose role is not bound. Their controllers
// would otherwise wait for their caches without a reason that an operator sees. It asks the API
// server until all are bound.
func newRoleAdvice(c client.Client, cfg Config) func(context.Context) (string, error) {
	var passed atomic.Bool
	return func(ctx context.Context) (string, error) {
		if passed.Load() {
			return "", nil
		}
		err := CheckRoles(ctx, c, cfg)
		passed.Store(err == nil)
		return "", err
	}
}

// CheckRoles returns an error that names the ClusterRoles of selected controllers that are not
// bound to the user of c.
func CheckRoles(ctx context.Context, c client.Client, cfg Config) error {
	namespace := "" // all
	if len(cfg.Namespaces) > 0 {
		namespace = cfg.Namespaces[0]
	}
	var errs []error
	for _, f := range featuresOf(cfg.withDefaults().Controllers) {
		errs = append(errs, f.checkRole(ctx, c, namespace))
	}
	return errors.Join(errs...)
}

// checkRole returns an error unless the user of c may write the status of the feature's objects.
func (f feature) checkRole(ctx context.Context, c client.Client, namespace string) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "update", Group: f.writes.Group, Resource: f.writes.Resource, Subresource: "status", Namespace: namespace,
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return fmt.Errorf("check permissions: %w", err)
	}
	if review.Status.Allowed {
		return nil
	}
	return fmt.Errorf("the manager may not update %s/status: bind the ClusterRole %s to its service account, or exclude the controllers with --controllers=*,-%s",
		f.writes, f.role, strings.Join(f.controllers, ",-"))
}
