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

// watched describes one watch.
type watched struct {
	kind     row.Kind
	version  schema.GroupVersion
	resource string
	selector string // label selector; if empty, all objects
	example  client.Object
}

// everything lists all watches. Pods need two of them, because no selector matches either of two
// labels.
var everything = []watched{
	{row.Jobs, v1alpha1.GroupVersion, "jobs", "", &v1alpha1.Job{}},
	{row.TaskGroups, v1alpha1.GroupVersion, "taskgroups", "", &v1alpha1.TaskGroup{}},
	{row.Tasks, v1alpha1.GroupVersion, "tasks", "", &v1alpha1.Task{}},
	{row.Robots, v1alpha1.GroupVersion, "robots", "", &v1alpha1.Robot{}},
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
func (k watched) listWatch(cfg *rest.Config, s *runtime.Scheme) (*cache.ListWatch, error) {
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

// lister is the connection of a Reflector to the API server. Its first list is taken at the
// resource version at which the previous instance stopped.
type lister struct {
	cache.ListerWatcherWithContext
	source *source
	start  <-chan struct{} // watches start when it is closed

	mu   sync.Mutex
	from string // resourceVersion of the first list; if empty, the current one
	live atomic.Int32
	// now is the current list, if the first list was taken at an earlier resource version, else
	// nil. Only the Reflector's goroutine uses it.
	now runtime.Object
}

// IsWatchListSemanticsUnSupported makes the Reflector list before it watches: a streamed list
// cannot be taken at an earlier resourceVersion.
func (l *lister) IsWatchListSemanticsUnSupported() bool { return true }

// List is for Reflectors without contexts.
func (l *lister) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// Watch is for Reflectors without contexts.
func (l *lister) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// ListWithContext lists all objects in one page. If pages had a resourceVersion, they would
// return the same old state again after the API server has dropped the watch history.
func (l *lister) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.Limit = 0
	if from := l.initialVersion(); from != "" {
		then := o
		then.ResourceVersion, then.ResourceVersionMatch = from, metav1.ResourceVersionMatchExact
		list, err := l.ListerWatcherWithContext.ListWithContext(ctx, then)
		if err == nil {
			l.now, err = l.ListerWatcherWithContext.ListWithContext(ctx, metav1.ListOptions{})
			return l.checkListed(list, err)
		}
		if !isExpired(err) {
			return l.checkListed(nil, err)
		}
		l.source.log.Info("The API server does not know any more how things stood when this program was stopped; readers load their lists anew", "kind", l.source.kind, "reason", err.Error())
	}
	if o.ResourceVersion == "0" { // a cached list of any age
		o.ResourceVersion = ""
	}
	return l.checkListed(l.ListerWatcherWithContext.ListWithContext(ctx, o))
}

func (l *lister) checkListed(list runtime.Object, err error) (runtime.Object, error) {
	l.source.recordAnswer(err)
	if err == nil || isMissing(err) {
		l.mu.Lock()
		l.from = ""
		l.mu.Unlock()
	}
	return list, err
}

// initialVersion returns the resourceVersion of the first list. It is empty after that list.
func (l *lister) initialVersion() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.from
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
	return &open{Interface: w, stopped: sync.OnceFunc(func() { l.live.Add(-1) })}, nil
}

// open is a watch that reports when it is stopped. Reflectors always stop their watches.
type open struct {
	watch.Interface
	stopped func()
}

// Stop stops the watch.
func (o *open) Stop() {
	o.stopped()
	o.Interface.Stop()
}

// isExpired reports whether the API server cannot list at an earlier resource version, as opposed
// to not at all at the moment.
func isExpired(err error) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) || isMissing(err) {
		return false
	}
	return !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsUnauthorized(err)
}

// isMissing reports whether the kind does not exist or may not be read.
func isMissing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }
