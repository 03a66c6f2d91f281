package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ProbeHost tries out on this host what is available for the tasks of an owner, which is the name
// of the agent's robot. The agent calls it once at its start. It takes some milliseconds and
// leaves only the empty Tree behind. dir is a directory of the agent, in which ProbeHost creates
// another one temporarily.
func ProbeHost(owner, dir string) Host {
	p := &probe{root: os.Geteuid() == 0}
	p.probeCgroups(owner)
	p.probeNamespaces()
	p.probeMounts(dir)
	p.probeRights()
	if p.cgroup != nil {
		// Otherwise it would be swept like the cgroup of an unknown task.
		_ = errors.Join(p.cgroup.Kill(time.Second), p.cgroup.Remove())
	}
	return p.host
}

// probeName is the cgroup in which everything is tried, as for a task.
const probeName = "k8s4r-probe"

type probe struct {
	host   Host
	root   bool
	cgroup *Cgroup // nil: cgroups are not available
}

// recordFact records the result of one try.
func (p *probe) recordFact(f Fact, err error, remedy string) {
	if err == nil {
		p.host.Allowed = append(p.host.Allowed, f)
		return
	}
	reason := err.Error()
	if !p.root && errors.Is(err, os.ErrPermission) {
		reason = fmt.Sprintf("the agent is not root (%v)", err)
		if f != FactCgroup { // which does not always need root
			remedy = "run the agent as root"
		}
	}
	p.host.Missing = append(p.host.Missing, MissingFact{f, reason, remedy})
}

func (p *probe) probeCgroups(owner string) {
	p.recordFact(FactCgroup, p.openTree(owner), "run the agent as root where /sys/fs/cgroup is mounted and writable, "+
		"or in a systemd user service with Delegate=yes on a host with cgroup version 2")
	const delegate = "without root: delegate it to the agent's systemd unit (Delegate=yes)"
	p.recordFact(FactCPULimit, p.probeController(cpu), delegate)
	p.recordFact(FactMemoryLimit, p.probeController(memory),
		"on a Raspberry Pi: add cgroup_enable=memory to the kernel's command line; "+delegate)
	p.recordFact(FactPIDsLimit, p.probeController(pids), delegate)
}

func (p *probe) openTree(owner string) error {
	tree, err := OpenTree(owner)
	if err != nil {
		return err
	}
	c, err := tree.Create(probeName, Limits{CPU: 1000, Memory: 64 << 20, PIDs: 64})
	if err != nil {
		return err
	}
	if err := tryStart(Confinement{Cgroup: c}); err != nil {
		return errors.Join(err, c.Remove())
	}
	p.host.Tree, p.cgroup = tree, c
	return nil
}

func (p *probe) probeController(name string) error {
	switch t := p.host.Tree; {
	case t == nil:
		return errors.New("requires a cgroup, which is unavailable")
	case t.hasController(name):
		return nil
	case t.refused != nil:
		return t.refused
	}
	return fmt.Errorf("the agent's cgroup has no controller %s", name)
}

// probeNamespaces clones children like the agent does for the shim.
func (p *probe) probeNamespaces() {
	const remedy = "use a kernel with CONFIG_PID_NS and CONFIG_IPC_NS"
	p.recordFact(FactPIDNamespace, tryClone(unix.CLONE_NEWPID), remedy)
	p.recordFact(FactIPCNamespace, tryClone(unix.CLONE_NEWIPC), remedy)
}

func (p *probe) probeMounts(dir string) {
	const remedy = "allow the agent mount(2): a container needs CAP_SYS_ADMIN"
	p.recordFact(FactMountNamespace, p.tryConfinement(Confinement{Mounts: &Mounts{}}), remedy)
	p.recordFact(FactPrivateTmp, p.tryTmp(dir), remedy)
	p.recordFact(FactReadOnlySystem, p.tryConfinement(Confinement{Mounts: &Mounts{ReadOnly: true}}), remedy)
}

func (p *probe) tryTmp(dir string) error {
	// A fixed name, so that the next run removes what a killed agent has left.
	tmp := filepath.Join(dir, "probe")
	defer os.RemoveAll(tmp)
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	return p.tryConfinement(Confinement{Mounts: &Mounts{Tmp: tmp}})
}

func (p *probe) probeRights() {
	const unprivileged = 65534
	p.recordFact(FactUser, p.tryConfinement(Confinement{User: &User{UID: unprivileged, GID: unprivileged}}), "give the agent CAP_SETUID and CAP_SETGID")
	p.recordFact(FactNoNewPrivileges, p.tryConfinement(Confinement{NoNewPrivileges: true}), "use Linux 3.5 or newer")
	p.recordFact(FactRlimits, tryRlimits(), "allow the agent setrlimit(2)")
	p.recordFact(FactSeccomp, p.tryConfinement(Confinement{Seccomp: true}),
		"use a kernel with CONFIG_SECCOMP_FILTER on amd64 or arm64")
}

// tryRlimits sets a limit to its current value, since any other value would limit the agent.
func tryRlimits() error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &now); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_CORE, &now)
}

func (p *probe) tryConfinement(f Confinement) error {
	f.Cgroup = p.cgroup
	return tryStart(f)
}

// tryStart starts no program: a child is created and confined, and then fails with ENOENT. Any
// other error is about the confinement.
func tryStart(f Confinement) error {
	_, _, err := Start(Command{Path: "", Args: []string{""}}, f)
	return expectNoFile(err)
}

func tryClone(flags uintptr) error {
	_, err := syscall.ForkExec("", []string{""}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	return expectNoFile(err)
}

func expectNoFile(err error) error {
	if setup, ok := errors.AsType[*SetupError](err); ok {
		return fmt.Errorf("%s: %w", setup.Step, setup.Err)
	}
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}
