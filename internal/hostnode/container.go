package hostnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// terminationVariable names the file whose content becomes the container's
// termination message, also where the container cannot see it at its
// terminationMessagePath.
const terminationVariable = "K8S4R_TERMINATION_LOG"

// ownDir is where a container finds the empty directory that is its own. The way to
// where that is on the host is closed to other users.
const ownDir = "/pod"

// workDir is where a command starts.
func (n *Node) workDir(c *corev1.Container, dir attemptDir) string {
	own := dir.work()
	if n.mounts() {
		own = ownDir
	}
	return cmp.Or(c.WorkingDir, own)
}

// specOf is what the shim of a run needs to know.
func (w *worker) specOf(ctx context.Context, c *corev1.Container, attempt int) (s shim.Spec, err error) {
	dir := w.places.attempt(c.Name, attempt)
	if err := makeAttempt(dir); err != nil {
		return s, err
	}
	env, err := w.environment(ctx, w.source, c, w.baseEnvironment(c, dir), w.node.capacity)
	if err != nil {
		return s, err
	}
	env[shims.EnvTaskDir] = dir.work()
	argv, err := command(c, env)
	if err != nil {
		return s, err
	}
	s = shim.Spec{
		Program: w.node.cfg.Program, Dir: dir.shim(), LogDir: dir.logs(), Driver: "exec",
		Config:  wire.TaskConfig{Exec: &wire.ExecConfig{Command: argv[0], Args: argv[1:]}},
		WorkDir: w.node.workDir(c, dir), Env: env, KillTimeout: w.gracePeriod(),
	}
	return s, w.confine(c, attempt, &s)
}

func makeAttempt(dir attemptDir) error {
	if err := os.MkdirAll(dir.work(), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(dir.termination(), os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o666), f.Close(), os.Chmod(dir.work(), 0o777))
}

// baseEnvironment is what every container of a pod finds, below what it says itself.
func (w *worker) baseEnvironment(c *corev1.Container, dir attemptDir) map[string]string {
	env := hostEnvironment()
	if uid := identityOf(w.pod, c).uid; uid != nil && *uid != int64(os.Geteuid()) {
		env["HOME"] = homeOf(*uid) // that of the node's own user is closed to others
	}
	env["HOSTNAME"] = hostname(w.pod)
	env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = w.node.api.host, w.node.api.port
	env[terminationVariable] = dir.termination()
	if w.node.mounts() {
		env[terminationVariable] = terminationPath(c)
	}
	return env
}

// homeOf is what an engine takes: by the list of users, and the root for who is not in it.
func homeOf(uid int64) string {
	u, err := user.LookupId(strconv.FormatInt(uid, 10))
	if err != nil {
		return "/"
	}
	return u.HomeDir
}

func hostname(pod *corev1.Pod) string {
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	return name[:min(len(name), 63)]
}

func terminationPath(c *corev1.Container) string {
	return cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
}

// confine says what of the host the container sees and may use.
func (w *worker) confine(c *corev1.Container, attempt int, s *shim.Spec) (err error) {
	if s.Confinement.User, err = userOf(w.pod, c, w.node.host); err != nil {
		return configError{err}
	}
	allows := w.node.host.Allows
	if w.node.mounts() {
		if err := w.seen(c, attempt, s); err != nil {
			return err
		}
		s.Confinement.Hostname = hostname(w.pod)
		s.Namespaces = !w.pod.Spec.HostPID && allows(isolation.FactPIDNamespace) && allows(isolation.FactIPCNamespace)
	}
	if e := c.SecurityContext; e != nil && e.AllowPrivilegeEscalation != nil && !*e.AllowPrivilegeEscalation {
		s.Confinement.NoNewPrivileges = allows(isolation.FactNoNewPrivileges)
	}
	if allows(isolation.FactCgroup) {
		s.Confinement.Cgroup, err = w.node.host.Tree.Create(w.places.attempt(c.Name, attempt).cgroup(w.pod.UID), limitsOf(c))
	}
	return err
}

// seen puts together what the container sees of the file systems.
func (w *worker) seen(c *corev1.Container, attempt int, s *shim.Spec) error {
	dir := w.places.attempt(c.Name, attempt)
	binds, err := w.binds(c, s.Env)
	if err != nil {
		return configError{err}
	}
	// Writable for all, so that a program that runs as another user can do it.
	binds = append(binds, isolation.Bind{Source: dir.termination(), Target: filepath.Join("/", terminationPath(c))})
	if !mounted(binds, ownDir) {
		binds = append(binds, isolation.Bind{Source: dir.work(), Target: ownDir})
	}
	if w.ownsHosts() && !mounted(binds, hostsPath) {
		binds = append(binds, isolation.Bind{Source: w.places.hosts(), Target: hostsPath})
	}
	readOnly := c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem
	s.Confinement.Mounts = &isolation.Mounts{ReadOnly: readOnly, Binds: binds}
	return nil
}

func mounted(binds []isolation.Bind, at string) bool {
	for _, b := range binds {
		if b.Target == at {
			return true
		}
	}
	return false
}

// limitsOf are the bounds that a container asks for.
func limitsOf(c *corev1.Container) isolation.Limits {
	return isolation.Limits{
		CPU: c.Resources.Limits.Cpu().MilliValue(), CPUWeight: c.Resources.Requests.Cpu().MilliValue(),
		Memory: c.Resources.Limits.Memory().Value(),
	}
}

// identity is what a pod and a container say of whom to run as, the container's word
// first.
type identity struct {
	uid, gid *int64
	notRoot  bool
	groups   []uint32
}

func identityOf(pod *corev1.Pod, c *corev1.Container) identity {
	p, own := cmp.Or(pod.Spec.SecurityContext, &corev1.PodSecurityContext{}), cmp.Or(c.SecurityContext, &corev1.SecurityContext{})
	strict := cmp.Or(own.RunAsNonRoot, p.RunAsNonRoot)
	i := identity{uid: cmp.Or(own.RunAsUser, p.RunAsUser), gid: cmp.Or(own.RunAsGroup, p.RunAsGroup), notRoot: strict != nil && *strict}
	for _, g := range p.SupplementalGroups {
		i.groups = append(i.groups, uint32(g))
	}
	if p.FSGroup != nil {
		i.groups = append(i.groups, uint32(*p.FSGroup))
	}
	return i
}

// userOf is whom a container runs as. Nil: the node's own user.
func userOf(pod *corev1.Pod, c *corev1.Container, host isolation.Host) (*isolation.User, error) {
	i := identityOf(pod, c)
	u := &isolation.User{UID: uint32(os.Geteuid()), Groups: i.groups}
	if i.uid != nil {
		u.UID = uint32(*i.uid)
	}
	if i.gid != nil {
		u.GID = uint32(*i.gid)
	}
	switch {
	case i.notRoot && u.UID == 0:
		return nil, errors.New("container has runAsNonRoot and would run as root: hostnode runs as root and knows no image's user; set runAsUser")
	case i.uid == nil && i.gid == nil && i.groups == nil:
		return nil, nil
	case host.Allows(isolation.FactUser):
		return u, nil
	case int(u.UID) == os.Geteuid():
		return nil, nil
	}
	return nil, fmt.Errorf("runAsUser %d: hostnode runs without root and can start processes only as user %d", u.UID, os.Geteuid())
}

// gracePeriod is the time from SIGTERM to SIGKILL.
func (w *worker) gracePeriod() time.Duration {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if w.pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *w.pod.Spec.TerminationGracePeriodSeconds
	}
	if w.pod.DeletionGracePeriodSeconds != nil {
		grace = *w.pod.DeletionGracePeriodSeconds
	}
	return time.Duration(max(grace, 1)) * time.Second // a kubelet gives a second at the least
}
