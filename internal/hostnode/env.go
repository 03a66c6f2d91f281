package hostnode

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// source reads the objects that pods refer to.
type source interface {
	getConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	getSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	requestToken(ctx context.Context, pod *corev1.Pod, audience string, seconds *int64) (token, error)
}

// configError reports that the configuration of a container refers to an object that is missing or
// invalid. A retry succeeds once the user creates that object.
type configError struct{ err error }

func (e configError) Error() string { return e.err.Error() }
func (e configError) Unwrap() error { return e.err }

// buildEnv returns base with the env and envFrom of a container added.
func (w *podState) buildEnv(ctx context.Context, from source, c *corev1.Container, base map[string]string, node corev1.ResourceList) (map[string]string, error) {
	env := maps.Clone(base)
	for _, f := range c.EnvFrom {
		values, err := w.envFrom(ctx, from, f)
		if err != nil {
			return nil, configError{err}
		}
		for name, value := range values {
			env[f.Prefix+name] = value
		}
	}
	for _, v := range c.Env {
		value, set, err := w.envValue(ctx, from, c, v, env, node)
		if err != nil {
			return nil, configError{fmt.Errorf("env %s: %w", v.Name, err)}
		}
		if set {
			env[v.Name] = value
		}
	}
	return env, nil
}

// envFrom returns the entries of a ConfigMap or Secret that can be variables.
func (w *podState) envFrom(ctx context.Context, from source, f corev1.EnvFromSource) (values map[string]string, err error) {
	switch {
	case f.ConfigMapRef != nil:
		m, err := from.getConfigMap(ctx, w.pod.Namespace, f.ConfigMapRef.Name)
		if err != nil {
			return nil, ignoreMissingOptional(err, f.ConfigMapRef.Optional)
		}
		values = m.Data
	case f.SecretRef != nil:
		s, err := from.getSecret(ctx, w.pod.Namespace, f.SecretRef.Name)
		if err != nil {
			return nil, ignoreMissingOptional(err, f.SecretRef.Optional)
		}
		values = toStrings(s.Data)
	}
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(name, value string) bool {
		return name == "" || strings.Contains(name, "=") || strings.Contains(value, "\x00")
	})
	return values, nil
}

func toStrings(data map[string][]byte) map[string]string {
	out := map[string]string{}
	for k, v := range data {
		out[k] = string(v)
	}
	return out
}

// ignoreMissingOptional returns nil if the object does not exist and is optional, otherwise err.
func ignoreMissingOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

// envValue returns the value of one variable. It can refer to variables before it.
func (w *podState) envValue(ctx context.Context, from source, c *corev1.Container, v corev1.EnvVar, before map[string]string, node corev1.ResourceList) (value string, set bool, err error) {
	r := v.ValueFrom
	switch {
	case r == nil:
		return expandVariables(v.Value, lookupIn(before)), true, nil
	case r.FieldRef != nil:
		value, err = w.fieldValue(r.FieldRef.FieldPath)
		return value, true, err
	case r.ResourceFieldRef != nil:
		value, err = w.resourceOf(r.ResourceFieldRef, c.Name, node)
		return value, true, err
	case r.ConfigMapKeyRef != nil:
		ref := r.ConfigMapKeyRef
		m, err := from.getConfigMap(ctx, w.pod.Namespace, ref.Name)
		if err != nil {
			return "", false, ignoreMissingOptional(err, ref.Optional)
		}
		return keyOf(m.Data, ref.Key, "ConfigMap "+ref.Name, ref.Optional)
	case r.SecretKeyRef != nil:
		ref := r.SecretKeyRef
		s, err := from.getSecret(ctx, w.pod.Namespace, ref.Name)
		if err != nil {
			return "", false, ignoreMissingOptional(err, ref.Optional)
		}
		return keyOf(toStrings(s.Data), ref.Key, "Secret "+ref.Name, ref.Optional)
	}
	return "", false, fmt.Errorf("valueFrom must have one of fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef; hostnode supports no other")
}

func keyOf(data map[string]string, key, of string, optional *bool) (string, bool, error) {
	value, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s", key, of)
	}
	return value, ok, nil
}

func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

// hostVariables are the variables that containers inherit from this program, so that commands are
// found where the user has them.
var hostVariables = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ"}

func hostEnvironment() map[string]string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range hostVariables {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	return env
}

// buildCommand returns the command line of a container.
func buildCommand(c *corev1.Container, env map[string]string) (argv []string, err error) {
	if len(c.Command) == 0 {
		return nil, fmt.Errorf("container %s has no command: hostnode does not pull images, so it does not know the command of image %q; set command", c.Name, c.Image)
	}
	return expandAll(slices.Concat(c.Command, c.Args), lookupIn(env)), nil
}
