package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

// watchedKind describes one watch.
type watchedKind struct {
	kind     row.Kind
	version  schema.GroupVersion
	resource string
	selector string // label selector; if empty, all objects
	example  client.Object
}

// watchedKinds lists all watches. Pods need two of them, because no selector matches either of two
// labels.
var watchedKinds = []watchedKind{
	{row.Jobs, v1alpha1.GroupVersion, "jobs", "", &v1alpha1.Job{}},
	{row.TaskGroups, v1alpha1.GroupVersion, "taskgroups", "", &v1alpha1.TaskGroup{}},
	{row.Tasks, v1alpha1.GroupVersion, "tasks", "", &v1alpha1.Task{}},
	{row.Robots, v1alpha1.GroupVersion, "robots", "", &v1alpha1.Robot{}},
	{row.Rollouts, v1alpha1.GroupVersion, "rollouts", "", &v1alpha1.Rollout{}},
	{row.JobFlows, flowv1.GroupVersion, "jobflows", "", &flowv1.JobFlow{}},
	{row.CronJobFlows, cronv1.GroupVersion, "cronjobflows", "", &cronv1.CronJobFlow{}},
	{row.VCJobs, batchv1.GroupVersion, "jobs", "", &batchv1.Job{}},
	{row.RayClusters, rayv1.GroupVersion, "rayclusters", "", &rayv1.RayCluster{}},
	{row.Pods, corev1.SchemeGroupVersion, "pods", batchv1.KeyJobName, &corev1.Pod{}},
	{row.Pods, corev1.SchemeGroupVersion, "pods", rayv1.LabelCluster + ",!" + batchv1.KeyJobName, &corev1.Pod{}},
}

// newScheme returns a scheme with all watched kinds.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, errors.Join(v1alpha1.AddToScheme(s), flowv1.AddToScheme(s), cronv1.AddToScheme(s), batchv1.AddToScheme(s), rayv1.AddToScheme(s), corev1.AddToScheme(s))
}

// listWatch returns a ListWatch for one kind. It needs no discovery, so that a kind that is not
// installed costs one request with status 404.
func (k watchedKind) listWatch(cfg *rest.Config, s *runtime.Scheme) (*cache.ListWatch, error) {
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath = &k.version, "/apis"
	if k.version.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	rc, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("watch %s of %s: %w", k.resource, k.version, err)
	}
	return cache.NewFilteredListWatchFromClient(rc, k.resource, metav1.NamespaceAll, func(o *metav1.ListOptions) { o.LabelSelector = k.selector }), nil
}

// lister is the connection of a Reflector to the API server.
type lister struct {
	cache.ListerWatcherWithContext
	source *source
	start  <-chan struct{} // watches start when it is closed
	live   atomic.Int32    // the number of open watches
}

// IsWatchListSemanticsUnSupported makes the Reflector list before it watches. A streamed list
// would wait for start, which is closed only after all kinds are listed.
func (l *lister) IsWatchListSemanticsUnSupported() bool { return true }

// List is for Reflectors without contexts.
func (l *lister) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// Watch is for Reflectors without contexts.
func (l *lister) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// ListWithContext lists all objects in one page. The API server returns a page with a
// resourceVersion from exactly that version, which is too old after a watch was lost.
func (l *lister) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.Limit = 0
	if o.ResourceVersion == "0" { // a cached list of any age
		o.ResourceVersion = ""
	}
	list, err := l.ListerWatcherWithContext.ListWithContext(ctx, o)
	l.source.recordListResult(err)
	return list, err
}

// WatchWithContext starts the watch after all kinds are listed, so that the cache is complete
// before the first change is published.
func (l *lister) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	select {
	case <-l.start:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w, err := l.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if err != nil {
		return nil, err
	}
	l.live.Add(1)
	return &trackedWatch{Interface: w, onStop: sync.OnceFunc(func() { l.live.Add(-1) })}, nil
}

// trackedWatch is a watch that reports when it is stopped. Reflectors always stop their watches.
type trackedWatch struct {
	watch.Interface
	onStop func()
}

// Stop stops the watch.
func (o *trackedWatch) Stop() {
	o.onStop()
	o.Interface.Stop()
}

// isMissing reports whether the kind does not exist or may not be read.
func isMissing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }
