// Package isolation confines the processes of tasks by what the host allows:
// control groups, a mount namespace, another user, no-new-privileges, resource
// limits and a system call filter. Probe says which of these there are.
//
// It bounds accidents of any task, and malice of tasks with a user of their
// own. A task that runs as root reaches the robot through its devices, which
// tasks need.
//
// # One thread, no stage
//
// Almost everything that confines a process on Linux belongs to a thread and is
// inherited by what the thread starts. So Start takes an OS thread of its own,
// confines it and forks there: the process is born confined, no program of ours
// runs between fork and exec, and the process that calls Start keeps its own
// view of the host, its rights and its place. Only resource limits belong to
// the whole process; see Confinement.Rlimits.
//
// There is one exception: the filter in a control group of version 2, where the
// child puts the filter on itself, after a fork of our own; see forkFiltered.
//
// A process with a pid or ipc namespace of its own cannot be made this way
// without a first process in it. That is the shim, which the agent starts with
// ShimNamespaces; Start is then called in the shim.
//
// # Where the control groups are
//
// With version 1 a task's groups are below those of the agent, one in each
// hierarchy: k8s4r/OWNER/TASK. A thread that forks joins them alone, through
// the tasks files, and leaves them after the fork.
//
// With version 2 a group either has processes or hands controllers to its
// children, never both. An agent that is root uses k8s4r/OWNER/TASK at the top
// of the hierarchy. It does not use its service's own group, even a delegated
// one: while a task lives on in it, systemd cannot start the service again
// (status 219/CGROUP). An agent that is not root has only what was delegated to
// it, and moves what lives there into the group "agent" next to the tasks'.
//
// # Own code for control groups
//
// The agent has 4.26 MB. github.com/opencontainers/cgroups v0.1.0 adds 0.66 MB,
// github.com/containerd/cgroups/v3 v3.1.3 adds 3.2 MB, and all of this package
// 0.21 MB; none adds memory worth counting (0.1 MB). What both would take over
// is writing the limits and reading the statistics, a page of code. What is
// hard stays here with either: a place that survives a restart, the leaf of a
// delegated group, killing a bomb with version 1, the sweep. The smaller one
// moves only whole processes, so a task could not be born in its group with
// version 1, and switches on every controller in all groups above, which are
// systemd's. The larger one joins threads and has cgroup.kill, at its price.
//
// # The system call filter
//
// It is assembled with golang.org/x/net/bpf. On top of that,
// github.com/elastic/go-seccomp-bpf ends a filter after its first group of
// calls, so clone3 could not be answered otherwise than mount, and lets other
// architectures pass to an answer instead of killing them. Anything else links
// libseccomp by cgo.
package isolation
