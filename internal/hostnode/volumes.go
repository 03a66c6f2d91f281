package hostnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// dataLink points to the current files of a volume, and the links next to it point through it. So
// a process sees an update completely or not at all, as with the kubelet.
const dataLink = "..data"

// writeContent writes the files of a volume unless they are unchanged.
func writeContent(dir string, c content, owner *owner) error {
	if have, err := readContent(dir); err == nil && reflect.DeepEqual(have, c) {
		return c.linkNames(dir) // an earlier process may have been killed before this
	}
	before, _ := os.Readlink(filepath.Join(dir, dataLink))
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(fresh, 0o755), c.writeFiles(fresh, owner)); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	link := filepath.Join(dir, dataLink)
	if err := errors.Join(os.Symlink(filepath.Base(fresh), link+".new"), os.Rename(link+".new", link)); err != nil {
		return err
	}
	if before != "" {
		_ = os.RemoveAll(filepath.Join(dir, before))
	}
	return c.linkNames(dir)
}

func (c content) writeFiles(dir string, owner *owner) error {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if !isInside(name) {
			return fmt.Errorf("path %q is outside the volume", name)
		}
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, c[name].data, 0o600); err != nil {
			return err
		}
		// The umask applies when the file is created, so the mode is set again.
		if err := errors.Join(os.Chmod(p, c[name].mode), owner.chownPath(p)); err != nil {
			return err
		}
	}
	return nil
}

// linkNames creates the links at the top of a volume, and removes the obsolete ones.
func (c content) linkNames(dir string) error {
	tops := map[string]bool{}
	for name := range c {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") && !tops[e.Name()] {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	for top := range tops {
		err := os.Symlink(path.Join(dataLink, top), filepath.Join(dir, top))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// readContent reads the current files of a volume.
func readContent(dir string) (content, error) {
	now, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
	if err != nil {
		return nil, err
	}
	c := content{}
	return c, filepath.WalkDir(now, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(p)
		c[strings.TrimPrefix(p, now+"/")] = file{data, info.Mode().Perm()}
		return err
	})
}

// owner is the owner of a pod's files. If nil, it is the node's user.
type owner struct{ uid, gid int }

func (o *owner) chownPath(path string) error {
	if o == nil {
		return nil
	}
	return os.Lchown(path, o.uid, o.gid)
}

// ownerOf returns the owner by the fsGroup of a pod. It is nil if the node may not change owners.
func ownerOf(pod *corev1.Pod, host isolation.Host) *owner {
	s := pod.Spec.SecurityContext
	if s == nil || s.FSGroup == nil || !host.Allows(isolation.FactUser) {
		return nil
	}
	return &owner{-1, int(*s.FSGroup)}
}

// prepareVolumes creates the volumes of a pod.
func (w *worker) prepareVolumes(ctx context.Context) error {
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		if !w.node.usesMounts() && !isHostPath(v) {
			continue // containers could not see it
		}
		if err := w.prepareVolume(ctx, v); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
	}
	return nil
}

func isHostPath(v *corev1.Volume) bool { return v.HostPath != nil }

func (w *worker) prepareVolume(ctx context.Context, v *corev1.Volume) error {
	if v.HostPath != nil {
		return prepareHostPath(v.HostPath)
	}
	dir := w.paths.volumeDir(v.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if v.EmptyDir != nil {
		return prepareEmptyDir(dir, ownerOf(w.pod, w.node.host))
	}
	c, err := w.contentOf(ctx, w.source, &v.VolumeSource, w.node.capacity)
	if err != nil {
		return err
	}
	o := ownerOf(w.pod, w.node.host)
	return writeContent(dir, c.makeGroupReadable(o), o)
}

// makeGroupReadable makes the files readable for the group of the owner, as fsGroup requires.
func (c content) makeGroupReadable(o *owner) content {
	if o == nil {
		return c
	}
	for name, f := range c {
		f.mode |= 0o440
		c[name] = f
	}
	return c
}

// refreshVolumes updates the volumes whose files come from the API server. An error of one volume
// does not prevent the update of the others, such as that with the pod's token.
func (w *worker) refreshVolumes(ctx context.Context) error {
	var errs []error
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		if !w.node.usesMounts() || !canRefresh(&v.VolumeSource) {
			continue
		}
		if err := w.prepareVolume(ctx, v); err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", v.Name, err))
		}
	}
	return errors.Join(errs...)
}

func prepareEmptyDir(dir string, o *owner) error {
	mode := fs.FileMode(0o777)
	if o != nil {
		mode |= fs.ModeSetgid
	}
	return errors.Join(o.chownPath(dir), os.Chmod(dir, mode))
}

// prepareHostPath creates the path if its type asks for that, and otherwise checks its type.
func prepareHostPath(h *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	switch kind {
	case corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(h.Path, 0o755)
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	case corev1.HostPathUnset:
		return nil
	default:
		return checkHostPath(h.Path, kind)
	}
}

func checkHostPath(path string, kind corev1.HostPathType) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	if !matchesType(info.Mode(), kind) {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", path, kind)
	}
	return nil
}

func matchesType(m fs.FileMode, kind corev1.HostPathType) bool {
	switch kind {
	case corev1.HostPathDirectory:
		return m.IsDir()
	case corev1.HostPathFile:
		return m.IsRegular()
	case corev1.HostPathSocket:
		return m&fs.ModeSocket != 0
	case corev1.HostPathCharDev:
		return m&fs.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0
	default:
		return true
	}
}

// buildBinds returns the mounts of a container.
func (w *worker) buildBinds(c *corev1.Container, env map[string]string) ([]isolation.Bind, error) {
	var all []isolation.Bind
	for _, m := range c.VolumeMounts {
		v := findVolume(w.pod, m.Name)
		if v == nil {
			return nil, fmt.Errorf("volumeMounts: the pod has no volume %q", m.Name)
		}
		source := w.paths.volumeDir(v.Name)
		if v.HostPath != nil {
			source = v.HostPath.Path
		}
		sub, err := subPath(source, m, env)
		if err != nil {
			return nil, fmt.Errorf("volume mount %s: %w", m.MountPath, err)
		}
		// Containers never write to files that come from the API server.
		readOnly := m.ReadOnly || canRefresh(&v.VolumeSource)
		all = append(all, isolation.Bind{Source: source, Sub: sub, Target: filepath.Join("/", m.MountPath), ReadOnly: readOnly})
	}
	return all, nil
}

func findVolume(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// subPath returns the path of a mount within its volume, and creates it if it is missing. If
// empty, the whole volume is mounted. Containers may create links in the volume at any time, so
// the path is resolved with os.Root here, and by Bind.Sub for the mount.
func subPath(volume string, m corev1.VolumeMount, env map[string]string) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		sub = expandVariables(m.SubPathExpr, lookupIn(env))
	}
	if sub == "" {
		return "", nil
	}
	if !isInside(sub) {
		return "", fmt.Errorf("subPath %q is outside the volume", sub)
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	sub = path.Clean(sub)
	if _, err = root.Stat(sub); errors.Is(err, fs.ErrNotExist) {
		err = root.MkdirAll(sub, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("create subPath %q in the volume: %w", sub, err)
	}
	return sub, nil
}
