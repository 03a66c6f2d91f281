package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
)

// kind is a kind with all names that users may type.
type kind struct {
	kind, plural, singular string
	aliases                []string
	newObject              func() client.Object
	newList                func() client.ObjectList
	version                schema.GroupVersion
}

var (
	jobKind = kind{"Job", "jobs", "job", []string{"rjob"},
		func() client.Object { return &robotv1.Job{} }, func() client.ObjectList { return &robotv1.JobList{} }, robotv1.GroupVersion}
	groupKind = kind{"TaskGroup", "taskgroups", "taskgroup", []string{"groups", "group", "rtg"},
		func() client.Object { return &robotv1.TaskGroup{} }, func() client.ObjectList { return &robotv1.TaskGroupList{} }, robotv1.GroupVersion}
	taskKind = kind{"Task", "tasks", "task", []string{"rtask"},
		func() client.Object { return &robotv1.Task{} }, func() client.ObjectList { return &robotv1.TaskList{} }, robotv1.GroupVersion}
	robotKind = kind{"Robot", "robots", "robot", []string{"rb"},
		func() client.Object { return &robotv1.Robot{} }, func() client.ObjectList { return &robotv1.RobotList{} }, robotv1.GroupVersion}

	kinds = []kind{jobKind, groupKind, taskKind, robotKind}
)

// The kinds of workflows, and the kinds that those create.
var (
	flowKind = kind{"JobFlow", "jobflows", "jobflow", []string{"flow", "flows", "jf"},
		func() client.Object { return &flowv1.JobFlow{} }, func() client.ObjectList { return &flowv1.JobFlowList{} }, flowv1.GroupVersion}
	podJobKind = kind{"Job", "jobs", "job", []string{"vcjobs", "vcjob", "vj"},
		func() client.Object { return &batchv1.Job{} }, func() client.ObjectList { return &batchv1.JobList{} }, batchv1.GroupVersion}
	podKind = kind{"Pod", "pods", "pod", []string{"po"},
		func() client.Object { return &corev1.Pod{} }, func() client.ObjectList { return &corev1.PodList{} }, corev1.SchemeGroupVersion}
	commandKind = kind{"Command", "commands", "command", nil,
		func() client.Object { return &busv1.Command{} }, func() client.ObjectList { return &busv1.CommandList{} }, busv1.GroupVersion}

	flowKinds = []kind{flowKind, podJobKind, podKind, commandKind}
)

// The other kinds that get lists.
var (
	templateKind = kind{"JobTemplate", "jobtemplates", "jobtemplate", []string{"templates", "template", "rjt"},
		func() client.Object { return &robotv1.JobTemplate{} }, func() client.ObjectList { return &robotv1.JobTemplateList{} }, robotv1.GroupVersion}
	rolloutKind = kind{"Rollout", "rollouts", "rollout", []string{"rro"},
		func() client.Object { return &robotv1.Rollout{} }, func() client.ObjectList { return &robotv1.RolloutList{} }, robotv1.GroupVersion}
	cronFlowKind = kind{"CronJobFlow", "cronjobflows", "cronjobflow", []string{"cjf"},
		func() client.Object { return &cronv1.CronJobFlow{} }, func() client.ObjectList { return &cronv1.CronJobFlowList{} }, cronv1.GroupVersion}
	rayKind = kind{"RayCluster", "rayclusters", "raycluster", []string{"ray"},
		func() client.Object { return &rayv1.RayCluster{} }, func() client.ObjectList { return &rayv1.RayClusterList{} }, rayv1.GroupVersion}

	// categoryKinds are the kinds of "get all". Pods are left out: those of other programs are Pods, too.
	categoryKinds = append(slices.Clone(kinds), rolloutKind, flowKind, cronFlowKind, podJobKind, rayKind, templateKind)
	getKinds      = append(slices.Clone(categoryKinds), podKind)
)

// getTypes are the names of getKinds for users.
var getTypes = []string{"jobs", "groups", "tasks", "robots", "rollouts", "flows", "cronjobflows", "vcjobs", "rayclusters", "jobtemplates", "pods", "all"}

// isOptional reports whether there are clusters without the kind: those without workflows, and those of
// a version before Rollouts.
func (k kind) isOptional() bool {
	return k.version.Group != robotv1.GroupVersion.Group || k.isSame(rolloutKind)
}

// resourceName returns the name with its group, as in job.robot.k8s4r.io.
func (k kind) resourceName() string {
	if k.version.Group == "" {
		return k.singular
	}
	return k.singular + "." + k.version.Group
}

// formatRef returns a reference to one object as kubectl prints and reads it.
func (k kind) formatRef(name string) string { return k.resourceName() + "/" + name }

func (k kind) hasName(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."+k.version.Group))
	return name == k.plural || name == k.singular || slices.Contains(k.aliases, name)
}

// findKind returns the kind of getKinds with the given name or alias.
func findKind(name string) (kind, error) {
	for _, k := range getKinds {
		if k.hasName(name) {
			return k, nil
		}
	}
	return kind{}, usagef("unknown type %q: must be one of %s", name, strings.Join(getTypes, ", "))
}

// isSame reports whether both are the same kind. The name is not enough: two kinds are called Job.
func (k kind) isSame(other kind) bool { return k.resourceName() == other.resourceName() }

// bareName removes the kind from a reference such as job/demo. A reference to another kind is a
// usage error.
func (k kind) bareName(ref string) (string, error) {
	prefix, name, found := strings.Cut(ref, "/")
	if !found {
		return ref, nil
	}
	if !k.hasName(prefix) || name == "" {
		return "", usagef("%q does not name a %s", ref, k.singular)
	}
	return name, nil
}

// resolveName returns the object with the given name. If there is none, it returns the only
// object whose name has this prefix.
func resolveName(ctx context.Context, c *cluster, k kind, name string) (client.Object, error) {
	obj := k.newObject()
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, obj)
	if !apierrors.IsNotFound(err) || isMissingKind(err) {
		return obj, wrapError(err, "get %s %s", k.singular, name)
	}
	found, err := listObjects(ctx, c, k, client.InNamespace(c.namespace))
	if err != nil {
		return nil, err
	}
	return findUniquePrefix(k, c.namespace, name, found)
}

func findUniquePrefix(k kind, namespace, prefix string, objects []client.Object) (client.Object, error) {
	found := slices.DeleteFunc(objects, func(o client.Object) bool { return !strings.HasPrefix(o.GetName(), prefix) })
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%s %q not found in namespace %s", k.singular, prefix, namespace)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("prefix %q is ambiguous: it matches %s", prefix, firstNames(found))
}

func firstNames(objects []client.Object) string {
	var names []string
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return actions.SummarizeNames(names)
}

// listObjects returns the objects of the kind, sorted by namespace and name.
func listObjects(ctx context.Context, c client.Reader, k kind, opts ...client.ListOption) ([]client.Object, error) {
	list := k.newList()
	if err := c.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list %s: %w", k.plural, err)
	}
	return extractItems(list)
}

func extractItems(list client.ObjectList) ([]client.Object, error) {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	objects := make([]client.Object, 0, len(items))
	for _, item := range items {
		objects = append(objects, item.(client.Object))
	}
	slices.SortFunc(objects, byName)
	return objects, nil
}

func byName(a, b client.Object) int {
	if n := strings.Compare(a.GetNamespace(), b.GetNamespace()); n != 0 {
		return n
	}
	return strings.Compare(a.GetName(), b.GetName())
}

// printJobLogs returns options that select the groups or tasks of a job. A name that is too long for a
// label value selects the whole namespace; callers check spec.jobName in any case.
func inJob(job client.Object) []client.ListOption {
	opts := []client.ListOption{client.InNamespace(job.GetNamespace())}
	if len(job.GetName()) <= maxLabelValue {
		opts = append(opts, client.MatchingLabels{robotv1.LabelJob: job.GetName()})
	}
	return opts
}

const maxLabelValue = 63

// wrapError wraps err with what was being done. It returns nil if err is nil.
func wrapError(err error, format string, a ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(fmt.Sprintf(format, a...)+": %w", err)
}
