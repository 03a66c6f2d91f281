package vcjob

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/platform/events"
)

// ReasonFailedCreate is the reason of the event about Pods, or objects they need, that the
// API server rejects.
const ReasonFailedCreate = "FailedCreate"

// createPods creates the Pods. It reports whether to reconcile again at once, because the
// API server will never accept them.
func (c *Controller) createPods(ctx context.Context, j *batchv1.Job, pods []*corev1.Pod) (again bool, err error) {
	err = forEachPod(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return c.createPod(ctx, j, pod) })
	switch {
	case err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case apierrors.IsInvalid(err):
		c.updateMemory(j, func(m *memory) { m.rejection = events.ClipText(err.Error(), events.MaxNoteBytes) })
		return true, nil
	}
	c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonFailedCreate, "Create", "%s", err)
	return false, err
}

// createPod creates one Pod. It succeeds if the Pod exists and belongs to the Job.
func (c *Controller) createPod(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) error {
	name := pod.Name
	c.expect.ExpectCreate(j.UID, name)
	err := c.Create(ctx, pod)
	if err == nil {
		observePodCreation(c.Now(), j)
		return nil
	}
	c.expect.ObserveCreate(j.UID, name)
	if apierrors.IsAlreadyExists(err) {
		return c.requireOwned(ctx, j, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: name}})
	}
	return fmt.Errorf("create pod %s: %w", name, err)
}

// requireOwned returns an error if the Job does not control the existing object.
func (c *Controller) requireOwned(ctx context.Context, j *batchv1.Job, o client.Object) error {
	owned, err := kit.ReadExisting(ctx, c.Live, j, o)
	if err != nil {
		return err
	}
	if !owned {
		return fmt.Errorf("create %T %s: the name is used by an object of another owner; rename the Job, or delete that object", o, o.GetName())
	}
	return nil
}

// ensureObjects creates the objects that the Pods need, or updates them after a change. A Job that
// needs none now has them checked when it runs again: they may have been deleted meanwhile.
func (c *Controller) ensureObjects(ctx context.Context, j *batchv1.Job, objects []client.Object) error {
	if len(objects) == 0 {
		c.updateMemory(j, func(m *memory) { m.ensuredObjects = objectsHash{} })
		return nil
	}
	text, err := json.Marshal(objects)
	if err != nil {
		return fmt.Errorf("objects of job %s: %w", j.Name, err)
	}
	var is objectsHash
	want := objectsHash(sha256.Sum256(text))
	if c.updateMemory(j, func(m *memory) { is = m.ensuredObjects }); is == want {
		return nil
	}
	for _, o := range objects {
		if err := c.ensureObject(ctx, j, o); err != nil {
			c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonFailedCreate, "Create", "%s", err)
			return err
		}
	}
	c.updateMemory(j, func(m *memory) { m.ensuredObjects = want })
	return nil
}

func (c *Controller) ensureObject(ctx context.Context, j *batchv1.Job, want client.Object) error {
	is := want.DeepCopyObject().(client.Object)
	err := c.createObject(ctx, is)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %T %s: %w", want, want.GetName(), err)
	}
	if _, claim := is.(*corev1.PersistentVolumeClaim); claim {
		return nil // an existing claim of that name is used
	}
	if err := c.requireOwned(ctx, j, is); err != nil {
		return err
	}
	if !updateContents(is, want) {
		return nil
	}
	if err := c.Update(ctx, is); err != nil {
		return fmt.Errorf("update %T %s: %w", is, is.GetName(), err)
	}
	return nil
}

// createObject creates an object. A Secret of the plugin ssh gets a key pair first. That takes a
// while, so it is only generated if the Secret does not exist.
func (c *Controller) createObject(ctx context.Context, o client.Object) error {
	secret, ok := o.(*corev1.Secret)
	if !ok || len(secret.Data[sshPrivateKey]) > 0 {
		return c.Create(ctx, o)
	}
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(o), &corev1.Secret{})
	if err == nil {
		return apierrors.NewAlreadyExists(corev1.Resource("secrets"), o.GetName())
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	key, err := c.GenerateKey()
	if err != nil {
		return fmt.Errorf("generate a key pair: %w", err)
	}
	maps.Copy(secret.Data, newKeyData(encodeKeyPair(key)))
	return c.Create(ctx, secret)
}

// updateContents sets the contents that depend on the number of replicas, and reports whether they
// have changed.
func updateContents(is, want client.Object) (changed bool) {
	if is, ok := is.(*corev1.ConfigMap); ok {
		data := want.(*corev1.ConfigMap).Data
		changed, is.Data = !equality.Semantic.DeepEqual(is.Data, data), data
	}
	return changed
}

// deleteObjects deletes those of the objects that the Job controls.
func (c *Controller) deleteObjects(ctx context.Context, j *batchv1.Job, objects []client.Object) error {
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
		c.updateMemory(j, func(m *memory) { m.ensuredObjects = objectsHash{} })
	}
	return nil
}
