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

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// terminationVariable is the environment variable with the path of the termination message file. A
// container that cannot see its terminationMessagePath uses it.
const terminationVariable = "K8S4R_TERMINATION_LOG"

// ownDir is where a container sees its own, initially empty directory. Other users cannot reach
// its path on the host.
const ownDir = "/pod"

// workDir returns the directory that a command starts in.
func (n *Node) workDir(c *corev1.Container, dir attemptDir) string {
	own := dir.workDir()
	if n.usesMounts() {
		own = ownDir
	}
	return cmp.Or(c.WorkingDir, own)
}

// specOf returns the shim's Spec of a run.
func (w *worker) specOf(ctx context.Context, c *corev1.Container, attempt int) (s shim.Spec, err error) {
	dir := w.paths.attemptPath(c.Name, attempt)
	if err := makeAttempt(dir); err != nil {
		return s, err
	}
	env, err := w.buildEnv(ctx, w.source, c, w.baseEnvironment(c, dir), w.node.capacity)
	if err != nil {
		return s, err
	}
	env[supervisor.EnvTaskDir] = dir.workDir()
	argv, err := buildCommand(c, env)
	if err != nil {
		return s, err
	}
	s = shim.Spec{
		Program: w.node.program, Dir: dir.shimDir(), LogDir: dir.logsDir(), Driver: "exec",
		Config:  wire.TaskConfig{Exec: &wire.ExecConfig{Command: argv[0], Args: argv[1:]}},
		WorkDir: w.node.workDir(c, dir), Env: env, KillTimeout: w.gracePeriod(),
	}
	return s, w.confineContainer(c, attempt, &s)
}

func makeAttempt(dir attemptDir) error {
	if err := os.MkdirAll(dir.workDir(), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(dir.terminationFile(), os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o666), f.Close(), os.Chmod(dir.workDir(), 0o777))
}

// baseEnvironment returns the environment of every container, which its env overrides.
func (w *worker) baseEnvironment(c *corev1.Container, dir attemptDir) map[string]string {
	env := hostEnvironment()
	if uid := identityOf(w.pod, c).uid; uid != nil && *uid != int64(os.Geteuid()) {
		env["HOME"] = homeOf(*uid) // other users cannot access the home of the node's user
	}
	env["HOSTNAME"] = podHostname(w.pod)
	env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = w.node.api.host, w.node.api.port
	env[terminationVariable] = dir.terminationFile()
	if w.node.usesMounts() {
		env[terminationVariable] = terminationPath(c)
	}
	return env
}

// homeOf returns the home of a user in /etc/passwd, or / for any other user, as container runtimes
// do.
func homeOf(uid int64) string {
	u, err := user.LookupId(strconv.FormatInt(uid, 10))
	if err != nil {
		return "/"
	}
	return u.HomeDir
}

func podHostname(pod *corev1.Pod) string {
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	return name[:min(len(name), 63)]
}

func terminationPath(c *corev1.Container) string {
	return cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
}

// confineContainer sets the isolation of a container.
func (w *worker) confineContainer(c *corev1.Container, attempt int, s *shim.Spec) (err error) {
	if s.Confinement.User, err = userOf(w.pod, c, w.node.host); err != nil {
		return configError{err}
	}
	allows := w.node.host.Allows
	if w.node.usesMounts() {
		if err := w.buildMounts(c, attempt, s); err != nil {
			return err
		}
		s.Confinement.Hostname = podHostname(w.pod)
		s.Namespaces = !w.pod.Spec.HostPID && allows(isolation.FactPIDNamespace) && allows(isolation.FactIPCNamespace)
	}
	if e := c.SecurityContext; e != nil && e.AllowPrivilegeEscalation != nil && !*e.AllowPrivilegeEscalation {
		s.Confinement.NoNewPrivileges = allows(isolation.FactNoNewPrivileges)
	}
	if allows(isolation.FactCgroup) {
		s.Confinement.Cgroup, err = w.node.host.Tree.Create(w.paths.attemptPath(c.Name, attempt).cgroupName(w.pod.UID), limitsOf(c))
	}
	return err
}

// buildMounts sets a container's view of the file systems.
func (w *worker) buildMounts(c *corev1.Container, attempt int, s *shim.Spec) error {
	dir := w.paths.attemptPath(c.Name, attempt)
	binds, err := w.buildBinds(c, s.Env)
	if err != nil {
		return configError{err}
	}
	// Writable for all users, since the program may run as another one.
	binds = append(binds, isolation.Bind{Source: dir.terminationFile(), Target: filepath.Join("/", terminationPath(c))})
	if !isMounted(binds, ownDir) {
		binds = append(binds, isolation.Bind{Source: dir.workDir(), Target: ownDir})
	}
	if w.ownsHosts() && !isMounted(binds, hostsPath) {
		binds = append(binds, isolation.Bind{Source: w.paths.hostsFile(), Target: hostsPath})
	}
	readOnly := c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem
	s.Confinement.Mounts = &isolation.Mounts{ReadOnly: readOnly, Binds: binds}
	return nil
}

func isMounted(binds []isolation.Bind, at string) bool {
	for _, b := range binds {
		if b.Target == at {
			return true
		}
	}
	return false
}

// limitsOf returns the resource limits of a container.
func limitsOf(c *corev1.Container) isolation.Limits {
	return isolation.Limits{
		CPU: c.Resources.Limits.Cpu().MilliValue(), CPUWeight: c.Resources.Requests.Cpu().MilliValue(),
		Memory: c.Resources.Limits.Memory().Value(),
	}
}

// identity is the user and group that a container runs as. The container's securityContext takes
// precedence over the pod's.
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

// userOf returns the user that a container runs as. If nil, it is the node's user.
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
		return nil, errors.New("container has runAsNonRoot and would run as root: hostnode does not know the user of an image; set runAsUser")
	case i.uid == nil && i.gid == nil && i.groups == nil:
		return nil, nil
	case host.Allows(isolation.FactUser):
		return u, nil
	case int(u.UID) == os.Geteuid():
		return nil, nil
	}
	return nil, fmt.Errorf("runAsUser %d: hostnode runs without root and can start processes only as user %d", u.UID, os.Geteuid())
}

// gracePeriod returns the time from SIGTERM to SIGKILL.
func (w *worker) gracePeriod() time.Duration {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if w.pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *w.pod.Spec.TerminationGracePeriodSeconds
	}
	if w.pod.DeletionGracePeriodSeconds != nil {
		grace = *w.pod.DeletionGracePeriodSeconds
	}
	return time.Duration(max(grace, 1)) * time.Second // at least a second, like the kubelet
}
