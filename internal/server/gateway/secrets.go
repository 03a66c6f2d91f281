package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Reasons of the condition SecretsReady and of events.
const (
	reasonSecretMissing   = "SecretMissing"
	reasonSecretForbidden = "SecretForbidden"
	reasonSecretUnusable  = "SecretUnusable"
)

// maxEnvLength is the longest environment string that Linux accepts: name, '=', value
// and NUL.
const maxEnvLength = 128 << 10

// secretError is why a task cannot have its secretEnv, for its owner.
type secretError struct{ reason, message string }

func (e *secretError) Error() string { return e.message }

func newSecretError(reason, format string, a ...any) error {
	return &secretError{reason, fmt.Sprintf(format, a...)}
}

// usesSecrets reports whether a Task has a secretEnv.
func usesSecrets(t *robotv1.Task) bool { return len(t.Spec.SecretEnv) > 0 }

// needsSecrets reports whether a dispatch must contain the values. An attempt that has
// started is only queried, which a deleted Secret must not prevent.
func needsSecrets(t *robotv1.Task, action string) bool {
	return action == wire.ActionCreate && usesSecrets(t) && !hasStarted(t)
}

// dispatchSecrets reads the secrets of a task and sends its dispatch. Values are not
// kept; a repetition reads them again.
func (g *Gateway) dispatchSecrets(ctx context.Context, uid types.UID) error {
	t, request := g.objects.task(uid), g.secretRequests.get(uid)
	isRequested := request.isOpen(t)
	if !isRequested && wantedAction(t) != wire.ActionCreate {
		g.secretRequests.drop(request)
		return nil
	}
	values, err := readSecrets(ctx, g.apiReader, t)
	if no, ok := errors.AsType[*secretError](err); ok {
		g.secretRequests.drop(request)
		return g.recordSecretError(ctx, t, no) // the downlink requests them again, or the agent
	}
	if err != nil {
		return fmt.Errorf("secretEnv of task %s/%s: %w", t.Namespace, t.Name, err)
	}
	g.secretRequests.drop(request)
	if isRequested {
		g.downlink.sendRequestedSecrets(request, values)
	} else {
		g.downlink.sendWithSecrets(t, values)
	}
	return g.clearSecretError(ctx, t)
}

// clearSecretError removes the condition SecretsReady. Most Tasks do not have it.
func (g *Gateway) clearSecretError(ctx context.Context, t *robotv1.Task) error {
	if meta.FindStatusCondition(t.Status.Conditions, robotv1.ConditionSecretsReady) == nil {
		return nil
	}
	next := t.DeepCopy()
	meta.RemoveStatusCondition(&next.Status.Conditions, robotv1.ConditionSecretsReady)
	return g.writeSecretCondition(ctx, t, next)
}

// recordSecretError writes the condition SecretsReady, and an event if it has changed.
func (g *Gateway) recordSecretError(ctx context.Context, t *robotv1.Task, no *secretError) error {
	g.downlink.restartTimeout(t.UID)
	next := t.DeepCopy()
	if !meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: robotv1.ConditionSecretsReady, Status: metav1.ConditionFalse, Reason: no.reason, Message: no.message, LastTransitionTime: metav1.NewTime(g.now()),
	}) {
		return nil
	}
	if err := g.writeSecretCondition(ctx, t, next); err != nil {
		return err
	}
	g.warn(next, no.reason, no.message)
	return nil
}

func (g *Gateway) writeSecretCondition(ctx context.Context, t, next *robotv1.Task) error {
	err := g.client.Status().Update(ctx, next)
	g.m.taskWrites.WithLabelValues(resultLabel(err)).Inc()
	if err != nil {
		return g.handleWriteError(ctx, t, err, "write condition SecretsReady")
	}
	g.storeTask(next)
	return nil
}

// readSecrets reads the values of a Task's secretEnv, each Secret once. The error may be
// a secretError.
func readSecrets(ctx context.Context, api client.Reader, t *robotv1.Task) (wire.Secrets, error) {
	values, read := wire.Secrets{}, map[string]*corev1.Secret{}
	for _, name := range slices.Sorted(maps.Keys(t.Spec.SecretEnv)) {
		from := t.Spec.SecretEnv[name]
		secret, known := read[from.SecretName]
		if !known {
			var err error
			if secret, err = readSecret(ctx, api, t.Namespace, from.SecretName); err != nil {
				return nil, err
			}
			read[from.SecretName] = secret
		}
		value, there, err := secretValue(secret, name, from)
		if err != nil {
			return nil, err
		}
		if there {
			values[name] = value
		}
	}
	return values, nil
}

// readSecret returns nil if the Secret does not exist.
func readSecret(ctx context.Context, api client.Reader, namespace, name string) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, newSecretError(reasonSecretForbidden, "The server may not read Secrets in namespace %s; to allow it, run: kubectl create rolebinding k8s4r-secret-reader "+
			"--clusterrole=k8s4r-secret-reader --serviceaccount=k8s4r-system:k8s4r-server --namespace=%s (%v)", namespace, namespace, err)
	case err != nil:
		return nil, err
	}
	return &secret, nil
}

// secretValue returns the value of a variable, and whether it is set: an optional one
// may not be.
func secretValue(secret *corev1.Secret, name string, from robotv1.SecretKey) (value string, there bool, err error) {
	if secret == nil {
		if from.Optional {
			return "", false, nil
		}
		return "", false, newSecretError(reasonSecretMissing, "secretEnv %s: Secret %s does not exist; the task starts once it does", name, from.SecretName)
	}
	data, there := secret.Data[from.Key]
	value = string(data)
	switch {
	case !there && from.Optional:
		return "", false, nil
	case !there:
		err = newSecretError(reasonSecretMissing, "secretEnv %s: Secret %s has no key %s; the task starts once it has", name, from.SecretName, from.Key)
	case strings.Contains(value, "\x00") || !utf8.ValidString(value):
		err = newSecretError(reasonSecretUnusable, "secretEnv %s: key %s of Secret %s is not valid UTF-8 text without NUL; store it as base64", name, from.Key, from.SecretName)
	case len(name)+len("=\x00")+len(value) > maxEnvLength:
		err = newSecretError(reasonSecretUnusable, "secretEnv %s: key %s of Secret %s has %d bytes, Linux accepts at most %d in a variable; let the task fetch the value itself",
			name, from.Key, from.SecretName, len(value), maxEnvLength-len(name)-len("=\x00"))
	}
	return value, there, err
}
