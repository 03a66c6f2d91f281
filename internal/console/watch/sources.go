package events

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
	"k8s4r.io/k8s4r/internal/events/row"
)

// watched is what one watch is of.
type watched struct {
	kind     row.Kind
	version  schema.GroupVersion
	resource string
	selector string // of labels; empty: all
	example  client.Object
}

// everything that is watched. The Pods are in two parts, as no selector means one of two labels.
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

// scheme knows all kinds that are watched.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, errors.Join(v1alpha1.AddToScheme(s), flowv1.AddToScheme(s), cronv1.AddToScheme(s), batchv1.AddToScheme(s), rayv1.AddToScheme(s), corev1.AddToScheme(s))
}

// listWatch asks the API server for one kind. It needs no discovery, so that a kind that is
// not installed costs one request that is not found.
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

// lister is how a Reflector gets at the API server through a source. It sees to it that the
// first list shows the world as it was where the last incarnation left off.
type lister struct {
	cache.ListerWatcherWithContext
	source *source
	start  <-chan struct{} // watches begin when it is closed

	mu   sync.Mutex
	from string // resourceVersion of the first list; empty: as it is now
	live atomic.Int32
	// now is what there was when the first list showed how things had stood. Nil: that list
	// showed it. Of the Reflector's goroutine.
	now runtime.Object
}

// IsWatchListSemanticsUnSupported makes the Reflector list before it watches: a list that is
// streamed cannot be had as of an earlier resourceVersion.
func (l *lister) IsWatchListSemanticsUnSupported() bool { return true }

// List is for Reflectors that know no contexts.
func (l *lister) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// Watch is for Reflectors that know no contexts.
func (l *lister) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// ListWithContext lists all objects at once: a list in pages with a resourceVersion would show
// what was then, again and again, when the API server has no watch from there any more.
func (l *lister) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.Limit = 0
	if from := l.earlier(); from != "" {
		then := o
		then.ResourceVersion, then.ResourceVersionMatch = from, metav1.ResourceVersionMatchExact
		list, err := l.ListerWatcherWithContext.ListWithContext(ctx, then)
		if err == nil {
			l.now, err = l.ListerWatcherWithContext.ListWithContext(ctx, metav1.ListOptions{})
			return l.listed(list, err)
		}
		if !forgotten(err) {
			return l.listed(nil, err)
		}
		l.source.log.Info("The API server does not know any more how things stood when this program was stopped; readers load their lists anew", "kind", l.source.kind, "reason", err.Error())
	}
	if o.ResourceVersion == "0" { // anything that a cache has, however old
		o.ResourceVersion = ""
	}
	return l.listed(l.ListerWatcherWithContext.ListWithContext(ctx, o))
}

func (l *lister) listed(list runtime.Object, err error) (runtime.Object, error) {
	l.source.answered(err)
	if err == nil || missing(err) {
		l.mu.Lock()
		l.from = ""
		l.mu.Unlock()
	}
	return list, err
}

// earlier is the resourceVersion of the first list. Empty: that was had.
func (l *lister) earlier() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.from
}

// WatchWithContext begins once all kinds are listed, so that the first change that is told
// finds the world complete.
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

// open is a watch that says when it is stopped, which a Reflector does at its end whoever ends it.
type open struct {
	watch.Interface
	stopped func()
}

// Stop ends the watch.
func (o *open) Stop() {
	o.stopped()
	o.Interface.Stop()
}

// forgotten tells an API server that cannot list as of an earlier moment from one that cannot
// list now.
func forgotten(err error) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) || missing(err) {
		return false
	}
	return !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsUnauthorized(err)
}

// missing tells that a kind is not there for us.
func missing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }
