// Package isolation confines the processes of tasks by what the host supports: cgroups, a mount
// namespace, another user, no-new-privileges, resource limits and a system call filter. ProbeHost
// returns which of these are available.
//
// It protects against accidents of any task, and against malicious tasks that run as a user of
// their own. A task that runs as root can reach the robot through its devices, which tasks need.
//
// # A thread of its own, no helper program
//
// Almost everything that confines a process on Linux belongs to a thread and is inherited by its
// children. So Start takes an OS thread of its own, confines it and forks there. The process is
// confined from its first instruction, no helper program runs between fork and exec, and the
// process that calls Start keeps its own view of the host, its rights and its cgroup. Only
// resource limits belong to the whole process; see Confinement.Rlimits.
//
// There is one exception: with a filter and cgroup v2, the child installs the filter itself, after
// a fork of our own; see forkFiltered.
//
// A process can only have its own PID or IPC namespace if a first process exists there. That is
// the shim, which the agent starts with ShimNamespaces. Start is then called in the shim.
//
// # The location of the cgroups
//
// With cgroup v1, a task's cgroups are below those of the agent, one in each hierarchy:
// k8s4r/OWNER/TASK. Only the forking thread joins them, through the tasks files, and it leaves
// them after the fork.
//
// With cgroup v2, a cgroup either has processes or passes controllers on to its children, never
// both. An agent that is root uses k8s4r/OWNER/TASK at the top of the hierarchy. It does not use
// the cgroup of its service, even if that is delegated: while a task runs in it, systemd cannot
// restart the service (status 219/CGROUP). An agent that is not root has only the cgroup that was
// delegated to it, and moves the processes in it into the cgroup "agent" next to those of the
// tasks.
//
// # Why no cgroup library is used
//
// The agent has 4.26 MB. github.com/opencontainers/cgroups v0.1.0 adds 0.66 MB,
// github.com/containerd/cgroups/v3 v3.1.3 adds 3.2 MB, and this whole package 0.21 MB; none of
// them needs much memory (0.1 MB). Both libraries would take over writing the limits and reading
// the statistics, which is a page of code. The difficult parts remain here with either: a location
// that survives a restart, the leaf of a delegated cgroup, killing a fork bomb with v1, the sweep.
// The smaller library moves only whole processes, so with v1 a task could not start in its cgroup,
// and it enables every controller in all cgroups above, which belong to systemd. The larger one
// joins threads and supports cgroup.kill, at its price.
//
// # The system call filter
//
// It consists of four kinds of instructions, so it needs no assembler: the shim has only the
// standard library and x/sys. github.com/elastic/go-seccomp-bpf ends a filter after its first group
// of calls, so clone3 could not get a different errno than mount, and it lets calls of other
// architectures return an error instead of killing the process. All other libraries link libseccomp
// with cgo.
package isolation
