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

// Probe tries on this host what there is for the tasks of an owner, the name
// of the agent's robot. It is for once, at the start of an agent, and takes
// some milliseconds. It leaves nothing behind but the empty Tree. dir is a
// directory of the agent, in which it makes another for the time of the call.
func Probe(owner, dir string) Host {
	p := &probe{root: os.Geteuid() == 0}
	p.cgroups(owner)
	p.namespaces()
	p.mounts(dir)
	p.rights()
	if p.cgroup != nil {
		// What it left would be swept as a task that nobody knows.
		_ = errors.Join(p.cgroup.Kill(time.Second), p.cgroup.Remove())
	}
	return p.host
}

// probeName is the control group in which everything is tried, as tasks are.
const probeName = "k8s4r-probe"

type probe struct {
	host   Host
	root   bool
	cgroup *Cgroup // nil: there are none
}

// note writes down the outcome of one try.
func (p *probe) note(f Fact, err error, how string) {
	if err == nil {
		p.host.Allowed = append(p.host.Allowed, f)
		return
	}
	why := err.Error()
	if !p.root && errors.Is(err, os.ErrPermission) {
		why = fmt.Sprintf("the agent is not root (%v)", err)
		if f != FactCgroup { // which can be had without
			how = "run the agent as root"
		}
	}
	p.host.Lacks = append(p.host.Lacks, Lack{f, why, how})
}

func (p *probe) cgroups(owner string) {
	p.note(FactCgroup, p.openTree(owner), "run the agent as root where /sys/fs/cgroup is mounted and writable, "+
		"or in a systemd user service with Delegate=yes on a host with cgroup version 2")
	const delegate = "without root: have it delegated to the agent's systemd unit (Delegate=yes)"
	p.note(FactCPULimit, p.controller(cpu), delegate)
	p.note(FactMemoryLimit, p.controller(memory),
		"on a Raspberry Pi: add cgroup_enable=memory to the kernel's command line; "+delegate)
	p.note(FactPIDsLimit, p.controller(pids), delegate)
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
	if err := try(Confinement{Cgroup: c}); err != nil {
		return errors.Join(err, c.Remove())
	}
	p.host.Tree, p.cgroup = tree, c
	return nil
}

func (p *probe) controller(name string) error {
	switch t := p.host.Tree; {
	case t == nil:
		return errors.New("it takes a cgroup, which is missing too")
	case t.has(name):
		return nil
	case t.refused != nil:
		return t.refused
	}
	return fmt.Errorf("the agent's cgroup has no controller %s", name)
}

// namespaces clones children, which is how the agent starts the shim.
func (p *probe) namespaces() {
	const how = "use a kernel with CONFIG_PID_NS and CONFIG_IPC_NS"
	p.note(FactPIDNamespace, tryClone(unix.CLONE_NEWPID), how)
	p.note(FactIPCNamespace, tryClone(unix.CLONE_NEWIPC), how)
}

func (p *probe) mounts(dir string) {
	const how = "allow the agent mount(2): in a container that takes CAP_SYS_ADMIN"
	p.note(FactMountNamespace, p.try(Confinement{Mounts: &Mounts{}}), how)
	p.note(FactPrivateTmp, p.tryTmp(dir), how)
	p.note(FactReadOnlySystem, p.try(Confinement{Mounts: &Mounts{ReadOnly: true}}), how)
}

func (p *probe) tryTmp(dir string) error {
	// Of one name, so that the next try removes what a killed agent has left.
	tmp := filepath.Join(dir, "probe")
	defer os.RemoveAll(tmp)
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	return p.try(Confinement{Mounts: &Mounts{Tmp: tmp}})
}

func (p *probe) rights() {
	const nobody = 65534
	p.note(FactUser, p.try(Confinement{User: &User{UID: nobody, GID: nobody}}), "give the agent CAP_SETUID and CAP_SETGID")
	p.note(FactNoNewPrivileges, p.try(Confinement{NoNewPrivileges: true}), "use Linux 3.5 or newer")
	p.note(FactRlimits, tryRlimits(), "allow the agent setrlimit(2)")
	p.note(FactSeccomp, p.try(Confinement{Seccomp: true}),
		"use a kernel with CONFIG_SECCOMP_FILTER on amd64 or arm64")
}

// tryRlimits sets a limit to what it is: any other would bind the agent.
func tryRlimits() error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &now); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_CORE, &now)
}

func (p *probe) try(f Confinement) error {
	f.Cgroup = p.cgroup
	return try(f)
}

// try starts no program: a child is made and confined, and then finds nothing
// to execute. Any other error is about the confinement.
func try(f Confinement) error {
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
