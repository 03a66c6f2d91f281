//go:build amd64 || arm64

package isolation

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// deniedCalls are those with which a task could change the robot itself, or
// that open much of the kernel to it and that no task needs. They fail with
// EPERM. ptrace is not among them: debuggers are of use, and a pid namespace
// and the user bound what it can reach.
var deniedCalls = []uint32{
	// What is mounted.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// The kernel, and what runs in it.
	unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE,
	unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_VHANGUP,
	// Keys, which no namespace divides.
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	// The robot's clock and name.
	unix.SYS_CLOCK_SETTIME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	// Files by handle, whatever hides them, and other namespaces.
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETNS,
}

// newNamespaces are the flags of clone that make a namespace. unshare knows
// one more, whose bit is a part of the signal number in clone.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Where the kernel's struct seccomp_data has what the filter looks at. Of an
// argument it is the lower half; both architectures are little-endian.
var (
	callNumber = bpf.LoadAbsolute{Off: 0, Size: 4}
	callArch   = bpf.LoadAbsolute{Off: 4, Size: 4}
	firstArg   = bpf.LoadAbsolute{Off: 16, Size: 4}
)

// Answers of a filter.
var (
	allow   = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	kill    = bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	refuse  = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	unknown = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
)

// program is the filter. A process of another architecture would call by other
// numbers, so it is killed.
func program() []bpf.Instruction {
	p := []bpf.Instruction{
		callArch,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1}, kill,
		callNumber,
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: firstForeignCall, SkipTrue: 1}, kill,
	}
	for _, call := range deniedCalls {
		p = append(p, on(call, refuse)...)
	}
	for _, call := range archCalls {
		p = append(p, on(call, refuse)...)
	}
	// Its flags are behind a pointer, which a filter cannot follow. Every C
	// library takes ENOSYS for an old kernel and calls clone.
	p = append(p, on(unix.SYS_CLONE3, unknown)...)
	p = append(p, refuseFlags(unix.SYS_CLONE, newNamespaces)...)
	p = append(p, refuseFlags(unix.SYS_UNSHARE, newNamespaces|unix.CLONE_NEWTIME)...)
	return append(p, allow)
}

func on(call uint32, answer bpf.Instruction) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, answer}
}

// refuseFlags ends the filter for a call, which is refused when its first
// argument has one of these bits.
func refuseFlags(call, flags uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 4},
		firstArg,
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: flags, SkipFalse: 1}, refuse,
		allow,
	}
}

// filter is the program as the kernel takes it.
func filter() (*unix.SockFprog, error) {
	raw, err := bpf.Assemble(program())
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}, nil
}

// filterCalls puts the filter on the calling thread, for good. The thread must
// have no-new-privileges or be root.
func filterCalls() error {
	prog, err := filter()
	if err != nil {
		return err
	}
	// Without the flag older kernels also switch off speculation, which costs
	// a task far more than the filter.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
