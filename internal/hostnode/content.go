package hostnode

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// content maps paths in a volume to files.
type content map[string]file

type file struct {
	data []byte
	mode fs.FileMode
}

// The default modes of files.
const (
	usualMode int32 = 0o644
	tokenMode int32 = 0o600
)

// contentOf returns the content of a volume whose files come from the API server. It is nil for
// other kinds of volumes.
func (w *podState) contentOf(ctx context.Context, from source, v *corev1.VolumeSource, node corev1.ResourceList) (content, error) {
	c := &collector{w: w, from: from, node: node, files: content{}}
	switch {
	case v.ConfigMap != nil:
		return c.files, c.collectConfigMap(ctx, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, v.ConfigMap.DefaultMode)
	case v.Secret != nil:
		return c.files, c.collectSecret(ctx, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, v.Secret.DefaultMode)
	case v.DownwardAPI != nil:
		return c.files, c.collectDownward(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		return c.files, c.collectProjected(ctx, v.Projected)
	}
	return nil, nil
}

// collector collects the files of a volume.
type collector struct {
	w     *podState
	from  source
	node  corev1.ResourceList
	files content
}

func (c *collector) collectConfigMap(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool, mode *int32) error {
	m, err := c.from.getConfigMap(ctx, c.w.pod.Namespace, name)
	if err != nil {
		return ignoreMissingOptional(err, optional)
	}
	data := maps.Clone(m.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	return c.collectKeys(data, items, "ConfigMap "+name, optional, mode)
}

func (c *collector) collectSecret(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool, mode *int32) error {
	s, err := c.from.getSecret(ctx, c.w.pod.Namespace, name)
	if err != nil {
		return ignoreMissingOptional(err, optional)
	}
	return c.collectKeys(s.Data, items, "Secret "+name, optional, mode)
}

// collectKeys adds the items, or all keys if there are no items.
func (c *collector) collectKeys(data map[string][]byte, items []corev1.KeyToPath, of string, optional *bool, mode *int32) error {
	if len(items) == 0 {
		for k, v := range data {
			c.addFile(k, v, nil, mode)
		}
		return nil
	}
	for _, i := range items {
		v, ok := data[i.Key]
		if !ok && (optional == nil || !*optional) {
			return fmt.Errorf("references non-existent key %s of %s", i.Key, of)
		}
		if ok {
			c.addFile(i.Path, v, i.Mode, mode)
		}
	}
	return nil
}

func (c *collector) addFile(name string, data []byte, mode, otherwise *int32) {
	m := usualMode
	for _, given := range []*int32{otherwise, mode} {
		if given != nil {
			m = *given
		}
	}
	c.files[path.Clean(name)] = file{data, fs.FileMode(m).Perm()}
}

func (c *collector) collectDownward(items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, i := range items {
		var value string
		var err error
		switch {
		case i.FieldRef != nil:
			value, err = c.w.fieldValue(i.FieldRef.FieldPath)
		case i.ResourceFieldRef != nil:
			value, err = c.w.resourceOf(i.ResourceFieldRef, "", c.node)
		}
		if err != nil {
			return err
		}
		c.addFile(i.Path, []byte(value), i.Mode, mode)
	}
	return nil
}

func (c *collector) collectProjected(ctx context.Context, p *corev1.ProjectedVolumeSource) error {
	for _, s := range p.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = c.collectConfigMap(ctx, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, p.DefaultMode)
		case s.Secret != nil:
			err = c.collectSecret(ctx, s.Secret.Name, s.Secret.Items, s.Secret.Optional, p.DefaultMode)
		case s.DownwardAPI != nil:
			err = c.collectDownward(s.DownwardAPI.Items, p.DefaultMode)
		case s.ServiceAccountToken != nil:
			err = c.collectToken(ctx, s.ServiceAccountToken, p.DefaultMode)
		default:
			err = fmt.Errorf("the source of a projected volume must be configMap, secret, downwardAPI or serviceAccountToken; hostnode supports no other")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) collectToken(ctx context.Context, t *corev1.ServiceAccountTokenProjection, mode *int32) error {
	token, err := c.from.requestToken(ctx, c.w.pod, t.Audience, t.ExpirationSeconds)
	if err != nil {
		return err
	}
	m := tokenMode
	if mode != nil && c.w.mayUseOtherUser() {
		m = *mode
	}
	c.addFile(t.Path, []byte(token.text), &m, nil)
	return nil
}

// mayUseOtherUser reports whether a container may run as another user than the node's.
func (w *podState) mayUseOtherUser() bool {
	if s := w.pod.Spec.SecurityContext; s != nil && (s.RunAsUser != nil || s.FSGroup != nil) {
		return true
	}
	for _, c := range allContainers(w.pod) {
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			return true
		}
	}
	return false
}

// canRefresh reports whether the files of a volume may change while the pod runs.
func canRefresh(v *corev1.VolumeSource) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// isInside reports whether a relative path stays in its directory.
func isInside(p string) bool {
	return !path.IsAbs(p) && path.Clean(p) != ".." && !strings.HasPrefix(path.Clean(p), "../")
}
