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

// content is the files of a volume, by their paths in it.
type content map[string]file

type file struct {
	data []byte
	mode fs.FileMode
}

// The mode of files whose pod says nothing of it.
const (
	usualMode int32 = 0o644
	tokenMode int32 = 0o600
)

// contentOf is what is in a volume whose files come from the API. Nil: it is of
// another kind.
func (w *world) contentOf(ctx context.Context, from source, v *corev1.VolumeSource, node corev1.ResourceList) (content, error) {
	c := &collector{w: w, from: from, node: node, files: content{}}
	switch {
	case v.ConfigMap != nil:
		return c.files, c.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, v.ConfigMap.DefaultMode)
	case v.Secret != nil:
		return c.files, c.secret(ctx, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, v.Secret.DefaultMode)
	case v.DownwardAPI != nil:
		return c.files, c.downward(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		return c.files, c.projected(ctx, v.Projected)
	}
	return nil, nil
}

// collector puts the files of a volume together.
type collector struct {
	w     *world
	from  source
	node  corev1.ResourceList
	files content
}

func (c *collector) configMap(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool, mode *int32) error {
	m, err := c.from.configMap(ctx, c.w.pod.Namespace, name)
	if err != nil {
		return unlessOptional(err, optional)
	}
	data := maps.Clone(m.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	return c.keys(data, items, "ConfigMap "+name, optional, mode)
}

func (c *collector) secret(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool, mode *int32) error {
	s, err := c.from.secret(ctx, c.w.pod.Namespace, name)
	if err != nil {
		return unlessOptional(err, optional)
	}
	return c.keys(s.Data, items, "Secret "+name, optional, mode)
}

// keys takes the items, or all when there are none.
func (c *collector) keys(data map[string][]byte, items []corev1.KeyToPath, of string, optional *bool, mode *int32) error {
	if len(items) == 0 {
		for k, v := range data {
			c.add(k, v, nil, mode)
		}
		return nil
	}
	for _, i := range items {
		v, ok := data[i.Key]
		if !ok && (optional == nil || !*optional) {
			return fmt.Errorf("references non-existent key %s of %s", i.Key, of)
		}
		if ok {
			c.add(i.Path, v, i.Mode, mode)
		}
	}
	return nil
}

func (c *collector) add(name string, data []byte, mode, otherwise *int32) {
	m := usualMode
	for _, given := range []*int32{otherwise, mode} {
		if given != nil {
			m = *given
		}
	}
	c.files[path.Clean(name)] = file{data, fs.FileMode(m).Perm()}
}

func (c *collector) downward(items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, i := range items {
		var value string
		var err error
		switch {
		case i.FieldRef != nil:
			value, err = c.w.field(i.FieldRef.FieldPath)
		case i.ResourceFieldRef != nil:
			value, err = c.w.resourceOf(i.ResourceFieldRef, "", c.node)
		}
		if err != nil {
			return err
		}
		c.add(i.Path, []byte(value), i.Mode, mode)
	}
	return nil
}

func (c *collector) projected(ctx context.Context, p *corev1.ProjectedVolumeSource) error {
	for _, s := range p.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = c.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, p.DefaultMode)
		case s.Secret != nil:
			err = c.secret(ctx, s.Secret.Name, s.Secret.Items, s.Secret.Optional, p.DefaultMode)
		case s.DownwardAPI != nil:
			err = c.downward(s.DownwardAPI.Items, p.DefaultMode)
		case s.ServiceAccountToken != nil:
			err = c.token(ctx, s.ServiceAccountToken, p.DefaultMode)
		default:
			err = fmt.Errorf("hostnode has projected volumes of ConfigMaps, Secrets, the downward API and tokens of service accounts, and no others")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) token(ctx context.Context, t *corev1.ServiceAccountTokenProjection, mode *int32) error {
	token, err := c.from.token(ctx, c.w.pod, t.Audience, t.ExpirationSeconds)
	if err != nil {
		return err
	}
	m := tokenMode
	if mode != nil && c.w.otherUser() {
		m = *mode
	}
	c.add(t.Path, []byte(token.text), &m, nil)
	return nil
}

// otherUser tells whether a container may run as somebody else than the node.
func (w *world) otherUser() bool {
	if s := w.pod.Spec.SecurityContext; s != nil && (s.RunAsUser != nil || s.FSGroup != nil) {
		return true
	}
	for _, c := range containers(w.pod) {
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			return true
		}
	}
	return false
}

// refreshes tells whether a volume's files may change while the pod runs.
func refreshes(v *corev1.VolumeSource) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// inside tells whether a path stays in the directory that it is relative to.
func inside(p string) bool {
	return !path.IsAbs(p) && path.Clean(p) != ".." && !strings.HasPrefix(path.Clean(p), "../")
}
