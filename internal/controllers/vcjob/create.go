package vcjob

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/notes"
)

// ReasonFailedCreate is the reason of the event about Pods, or what they need,
// that the API server does not take.
const ReasonFailedCreate = "FailedCreate"

// createPods creates the Pods. It tells whether to look again at once, because
// the API server will never take them.
func (c *Controller) createPods(ctx context.Context, j *batchv1.Job, pods []*corev1.Pod) (again bool, err error) {
	err = each(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return c.create(ctx, j, pod) })
	switch {
	case err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case apierrors.IsInvalid(err):
		c.remember(j, func(m *memory) { m.refused = notes.Clip(err.Error(), notes.Limit) })
		return true, nil
	}
	c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonFailedCreate, "Create", "%s", err)
	return false, err
}

// create creates one Pod. One of ours that exists already is good news.
func (c *Controller) create(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) error {
	name := pod.Name
	c.expect.Create(j.UID, name)
	err := c.Create(ctx, pod)
	if err == nil {
		return nil
	}
	c.expect.Created(j.UID, name)
	if apierrors.IsAlreadyExists(err) {
		return c.meet(ctx, j, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: name}})
	}
	return fmt.Errorf("create pod %s: %w", name, err)
}

// meet reads an object whose name is taken, and fails when it is not ours.
func (c *Controller) meet(ctx context.Context, j *batchv1.Job, o client.Object) error {
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return fmt.Errorf("get %T %s: %w", o, o.GetName(), err)
	}
	if !metav1.IsControlledBy(o, j) {
		return fmt.Errorf("create %T %s: the name is held by another owner; rename the Job, or delete the other", o, o.GetName())
	}
	return nil
}

// ensure makes the objects that the Pods need, once for each change of them.
func (c *Controller) ensure(ctx context.Context, j *batchv1.Job, objects []client.Object) error {
	if len(objects) == 0 {
		return nil
	}
	want, err := json.Marshal(objects)
	if err != nil {
		return fmt.Errorf("objects of job %s: %w", j.Name, err)
	}
	var is string
	c.remember(j, func(m *memory) { is = m.ensured })
	if is == string(want) {
		return nil
	}
	for _, o := range objects {
		if err := c.ensureOne(ctx, j, o); err != nil {
			c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonFailedCreate, "Create", "%s", err)
			return err
		}
	}
	c.remember(j, func(m *memory) { m.ensured = string(want) })
	return nil
}

func (c *Controller) ensureOne(ctx context.Context, j *batchv1.Job, want client.Object) error {
	is := want.DeepCopyObject().(client.Object)
	err := c.Create(ctx, is)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %T %s: %w", want, want.GetName(), err)
	}
	if _, claim := is.(*corev1.PersistentVolumeClaim); claim {
		return nil // a claim of that name is what was asked for, whoever made it
	}
	if err := c.meet(ctx, j, is); err != nil {
		return err
	}
	// Only the lists of hosts change, with the number of replicas.
	hosts, ok := is.(*corev1.ConfigMap)
	if !ok || equality.Semantic.DeepEqual(hosts.Data, want.(*corev1.ConfigMap).Data) {
		return nil
	}
	hosts.Data = want.(*corev1.ConfigMap).Data
	if err := c.Update(ctx, hosts); err != nil {
		return fmt.Errorf("update config map %s: %w", hosts.Name, err)
	}
	return nil
}

// drop deletes objects that are ours.
func (c *Controller) drop(ctx context.Context, j *batchv1.Job, objects []client.Object) error {
	for _, o := range objects {
		err := c.Live.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil && metav1.IsControlledBy(o, j) {
			uid := o.GetUID()
			err = c.Delete(ctx, o, client.Preconditions{UID: &uid})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
		}
	}
	if len(objects) > 0 {
		c.remember(j, func(m *memory) { m.ensured = "" })
	}
	return nil
}
