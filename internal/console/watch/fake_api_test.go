package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

// api is a fake API server with the kinds Job and Task. It keeps the history of all writes, and
// can forget it and break watches.
type api struct {
	mu        sync.Mutex
	rev       uint64
	log       []write
	forgotten uint64 // lists and watches at an earlier revision fail
	absent    map[row.Kind]bool
	watches   map[*stream]bool
	changed   chan struct{}
	held      chan struct{} // watches send nothing until it is closed; nil: no delay
}

type write struct {
	rev    uint64
	what   watch.EventType
	kind   row.Kind
	object client.Object
}

func newAPI() *api {
	return &api{rev: 100, absent: map[row.Kind]bool{}, watches: map[*stream]bool{}, changed: make(chan struct{})}
}

// put creates or updates an object.
func (a *api) put(o client.Object) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	what := watch.Added
	if had := a.at(a.rev)[objectKey{kindOf(o), client.ObjectKeyFromObject(o)}]; had != nil {
		what = watch.Modified
		o.SetUID(had.GetUID())
	} else {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", a.rev+1)))
	}
	return a.append(what, o)
}

// remove deletes an object. It returns false if the object does not exist.
func (a *api) remove(kind row.Kind, name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	had := a.at(a.rev)[objectKey{kind, types.NamespacedName{Namespace: "n", Name: name}}]
	if had != nil {
		a.append(watch.Deleted, copyOf(had))
	}
	return had != nil
}

func (a *api) append(what watch.EventType, o client.Object) uint64 {
	a.rev++
	o = copyOf(o)
	o.SetResourceVersion(strconv.FormatUint(a.rev, 10))
	a.log = append(a.log, write{a.rev, what, kindOf(o), o})
	close(a.changed)
	a.changed = make(chan struct{})
	return a.rev
}

// at returns the objects at a revision. Callers hold the lock.
func (a *api) at(rev uint64) map[objectKey]client.Object {
	out := map[objectKey]client.Object{}
	for _, w := range a.log {
		at := objectKey{w.kind, client.ObjectKeyFromObject(w.object)}
		switch {
		case w.rev > rev:
		case w.what == watch.Deleted:
			delete(out, at)
		default:
			out[at] = w.object
		}
	}
	return out
}

// forget drops the history: watches end and cannot resume.
func (a *api) forget() {
	a.mu.Lock()
	a.rev++ // a write to another kind
	a.forgotten = a.rev
	a.mu.Unlock()
	a.cutOff()
}

// cutOff ends all watches.
func (a *api) cutOff() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watches {
		w.Stop()
		delete(a.watches, w)
	}
}

// holdWatches delays the events of all watches until release is called.
func (a *api) holdWatches() (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = make(chan struct{})
	return sync.OnceFunc(func() { close(a.held) })
}

func (a *api) setAbsent(kind row.Kind, is bool) {
	a.mu.Lock()
	a.absent[kind] = is
	a.mu.Unlock()
	a.cutOff()
}

// newStore returns a store for this API server.
func (a *api) newStore(c Config) *Store {
	w := newStore(c)
	for _, k := range watchedKinds[:3] {
		if k.kind != row.TaskGroups {
			w.addKind(k, &kindAPI{a, k.kind})
		}
	}
	return w
}

// kindAPI is one kind of an api.
type kindAPI struct {
	*api
	kind row.Kind
}

var expired = apierrors.NewResourceExpired("too old resource version")

func (k *kindAPI) List(o metav1.ListOptions) (runtime.Object, error) {
	return k.ListWithContext(context.Background(), o)
}

func (k *kindAPI) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return k.WatchWithContext(context.Background(), o)
}

func (k *kindAPI) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.absent[k.kind] {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	}
	rev := k.rev
	at := k.at(rev)
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(rev, 10)}
	jobs, tasks := &v1alpha1.JobList{ListMeta: meta}, &v1alpha1.TaskList{ListMeta: meta}
	for _, p := range slices.SortedFunc(maps.Keys(at), func(a, b objectKey) int { return len(a.name.Name) - len(b.name.Name) }) {
		switch o := copyOf(at[p]).(type) {
		case *v1alpha1.Job:
			jobs.Items = append(jobs.Items, *o)
		case *v1alpha1.Task:
			tasks.Items = append(tasks.Items, *o)
		}
	}
	if k.kind == row.Jobs {
		return jobs, nil
	}
	return tasks, nil
}

func (k *kindAPI) WatchWithContext(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	switch {
	case k.absent[k.kind]:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	case from < k.forgotten:
		return nil, expired
	}
	s := &stream{out: make(chan watch.Event), done: make(chan struct{})}
	k.watches[s] = true
	go k.serve(s, from, k.held)
	return s, nil
}

// stream is one watch.
type stream struct {
	out  chan watch.Event
	once sync.Once
	done chan struct{}
}

func (s *stream) Stop()                          { s.once.Do(func() { close(s.done) }) }
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

func (k *kindAPI) serve(s *stream, from uint64, held <-chan struct{}) {
	defer close(s.out)
	if held != nil {
		select {
		case <-held:
		case <-s.done:
			return
		}
	}
	for {
		k.mu.Lock()
		if !k.watches[s] { // the watch has ended
			k.mu.Unlock()
			return
		}
		var due []write
		for _, w := range k.log {
			if w.rev > from && w.kind == k.kind {
				due = append(due, w)
			}
		}
		from = k.rev
		changed, bookmark := k.changed, bookmarkOf(k.kind, k.rev)
		k.mu.Unlock()
		for _, w := range append(due, write{what: watch.Bookmark, object: bookmark}) {
			select {
			case s.out <- watch.Event{Type: w.what, Object: copyOf(w.object)}:
			case <-s.done:
				return
			}
		}
		select {
		case <-changed:
		case <-s.done:
			return
		}
	}
}

func bookmarkOf(kind row.Kind, rev uint64) client.Object {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(rev, 10)}
	if kind == row.Jobs {
		return &v1alpha1.Job{ObjectMeta: meta}
	}
	return &v1alpha1.Task{ObjectMeta: meta}
}

func kindOf(o client.Object) row.Kind {
	if _, ok := o.(*v1alpha1.Job); ok {
		return row.Jobs
	}
	return row.Tasks
}

func copyOf(o client.Object) client.Object {
	c, _ := o.DeepCopyObject().(client.Object)
	return c
}
