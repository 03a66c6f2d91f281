package bridge

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
	"k8s4r.io/k8s4r/internal/wire"
)

// The reasons why a task waits for its secretEnv, in its condition and as events.
const (
	reasonSecretMissing   = "SecretMissing"
	reasonSecretForbidden = "SecretForbidden"
	reasonSecretUnusable  = "SecretUnusable"
)

// maxVariable is the longest value of an environment variable, with its name and
// what is between and behind them: Linux takes no more.
const maxVariable = 128 << 10

// unreadyError is why a task cannot have its secretEnv now, for its owner, who can
// mend it.
type unreadyError struct{ reason, message string }

func (e *unreadyError) Error() string { return e.message }

func unready(reason, format string, a ...any) error {
	return &unreadyError{reason, fmt.Sprintf(format, a...)}
}

// wantsSecrets tells whether a Task has values of Secrets.
func wantsSecrets(t *robotv1.Task) bool { return len(t.Spec.SecretEnv) > 0 }

// goesWithSecrets tells whether they must go with what its robot is told. An attempt
// that has begun is only asked for, and no Secret that is gone may keep us from that.
func goesWithSecrets(t *robotv1.Task, action string) bool {
	return action == wire.ActionCreate && wantsSecrets(t) && !hasStarted(t)
}

// dispatchSecrets reads what the dispatch of a task waits for, and sends it. Values
// are kept nowhere: for a repetition they are read again.
func (b *Bridge) dispatchSecrets(ctx context.Context, uid types.UID) error {
	t := b.view.task(uid)
	if wanted(t) != wire.ActionCreate {
		return nil
	}
	values, err := secretsOf(ctx, b.live, t)
	if no, ok := errors.AsType[*unreadyError](err); ok {
		return b.sayUnready(ctx, t, no) // the downlink asks again
	}
	if err != nil {
		return fmt.Errorf("secretEnv of task %s/%s: %w", t.Namespace, t.Name, err)
	}
	b.downlink.deliver(t, values)
	return nil
}

// sayUnready writes down why a task waits, once.
func (b *Bridge) sayUnready(ctx context.Context, t *robotv1.Task, no *unreadyError) error {
	next := t.DeepCopy()
	if !meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: robotv1.ConditionSecretsReady, Status: metav1.ConditionFalse, Reason: no.reason, Message: no.message, LastTransitionTime: metav1.NewTime(b.now()),
	}) {
		return nil
	}
	err := b.client.Status().Update(ctx, next)
	b.m.taskWrites.WithLabelValues(result(err)).Inc()
	if err != nil {
		return b.notWritten(ctx, t, err, "say what it waits for")
	}
	b.wroteTask(next)
	b.warn(next, no.reason, no.message)
	return nil
}

// secretsOf reads the values of a Task's secretEnv, each Secret once. The error
// may be an unreadyError.
func secretsOf(ctx context.Context, api client.Reader, t *robotv1.Task) (wire.Secrets, error) {
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
		value, there, err := valueOf(secret, name, from)
		if err != nil {
			return nil, err
		}
		if there {
			values[name] = value
		}
	}
	return values, nil
}

// readSecret returns nil when there is none.
func readSecret(ctx context.Context, api client.Reader, namespace, name string) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, unready(reasonSecretForbidden, "The server may not read Secrets of the namespace %s; permit it with: kubectl create rolebinding k8s4r-secret-reader "+
			"--clusterrole=k8s4r-secret-reader --serviceaccount=k8s4r-system:k8s4r-server --namespace=%s (%v)", namespace, namespace, err)
	case err != nil:
		return nil, err
	}
	return &secret, nil
}

// valueOf is the value of a variable. Not there: the task does without.
func valueOf(secret *corev1.Secret, name string, from robotv1.SecretKey) (value string, there bool, err error) {
	if secret == nil {
		if from.Optional {
			return "", false, nil
		}
		return "", false, unready(reasonSecretMissing, "secretEnv %s: there is no Secret %s; the task starts when it is there", name, from.SecretName)
	}
	data, there := secret.Data[from.Key]
	value = string(data)
	switch {
	case !there && from.Optional:
		return "", false, nil
	case !there:
		err = unready(reasonSecretMissing, "secretEnv %s: the Secret %s has no key %s; the task starts when it has", name, from.SecretName, from.Key)
	case strings.Contains(value, "\x00") || !utf8.ValidString(value):
		err = unready(reasonSecretUnusable, "secretEnv %s: the key %s of the Secret %s is no text, and a variable takes nothing else; store it in base64", name, from.Key, from.SecretName)
	case len(name)+len("=\x00")+len(value) > maxVariable:
		err = unready(reasonSecretUnusable, "secretEnv %s: the key %s of the Secret %s has %d bytes, and Linux takes at most %d for a variable; have the task fetch it instead",
			name, from.Key, from.SecretName, len(value), maxVariable-len(name)-len("=\x00"))
	}
	return value, there, err
}
