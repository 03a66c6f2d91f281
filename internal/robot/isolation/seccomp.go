//go:build amd64 || arm64

package isolation

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// deniedCalls are calls with which a task could change the robot itself, or that expose much of
// the kernel and that no task needs. They fail with EPERM. ptrace is allowed, since debuggers are
// useful; a PID namespace and the user limit what it can reach.
var deniedCalls = []uint32{
	// Mounts.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// The kernel and its modules.
	unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE,
	unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_VHANGUP,
	// Keys, which are not isolated by any namespace.
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	// The robot's clock and host name.
	unix.SYS_CLOCK_SETTIME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	// Files by handle, which bypasses hidden directories, and other namespaces.
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETNS,
}

// newNamespaces are the flags of clone that create a namespace. unshare has one more, whose bit is
// part of the signal number in clone.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in the kernel's struct seccomp_data. Of an argument it is the lower half; both
// architectures are little-endian.
var (
	callNumber = loadWord(0)
	callArch   = loadWord(4)
	firstArg   = loadWord(16)
)

// Return values of a filter.
var (
	allow   = returnValue(unix.SECCOMP_RET_ALLOW)
	kill    = returnValue(unix.SECCOMP_RET_KILL_PROCESS)
	refuse  = returnValue(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	unknown = returnValue(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
)

// loadWord returns the instruction that loads 4 bytes at an offset.
func loadWord(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func returnValue(value uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
}

// jump returns the instruction that compares what was loaded with a value, by unix.BPF_JEQ, BPF_JGE or
// BPF_JSET, and skips so many instructions.
func jump(compare uint16, value uint32, ifTrue, ifFalse uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: value, Jt: ifTrue, Jf: ifFalse}
}

// buildFilter returns the filter. It kills processes of another architecture, since their call
// numbers differ.
func buildFilter() []unix.SockFilter {
	p := []unix.SockFilter{
		callArch,
		jump(unix.BPF_JEQ, auditArch, 1, 0), kill,
		callNumber,
		jump(unix.BPF_JGE, firstForeignCall, 0, 1), kill,
	}
	for _, call := range deniedCalls {
		p = append(p, matchCall(call, refuse)...)
	}
	for _, call := range archCalls {
		p = append(p, matchCall(call, refuse)...)
	}
	// The flags of clone3 are behind a pointer, which a filter cannot follow. All C libraries take
	// ENOSYS for an old kernel and fall back to clone.
	p = append(p, matchCall(unix.SYS_CLONE3, unknown)...)
	p = append(p, refuseFlags(unix.SYS_CLONE, newNamespaces)...)
	p = append(p, refuseFlags(unix.SYS_UNSHARE, newNamespaces|unix.CLONE_NEWTIME)...)
	return append(p, allow)
}

func matchCall(call uint32, answer unix.SockFilter) []unix.SockFilter {
	return []unix.SockFilter{jump(unix.BPF_JEQ, call, 0, 1), answer}
}

// refuseFlags ends the filter for a call, and denies it if its first argument has one of these
// bits.
func refuseFlags(call, flags uint32) []unix.SockFilter {
	return []unix.SockFilter{
		jump(unix.BPF_JEQ, call, 0, 4),
		firstArg,
		jump(unix.BPF_JSET, flags, 0, 1), refuse,
		allow,
	}
}

// newFilterProgram returns the filter as the kernel takes it.
func newFilterProgram() *unix.SockFprog {
	filter := buildFilter()
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}

// filterCalls permanently installs the filter on the calling thread. The thread must be root or
// have no-new-privileges.
func filterCalls() error {
	prog := newFilterProgram()
	// Without this flag, older kernels also disable speculative execution, which costs a task far
	// more than the filter.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
