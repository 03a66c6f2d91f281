package isolation

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// firstForeignCall is the first number of the x32 ABI, which has the same calls under other
	// numbers. They would bypass a list of numbers.
	firstForeignCall = 0x40000000
)

// archCalls are denied calls that only this architecture has.
var archCalls = []uint32{
	unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_USELIB, unix.SYS_CREATE_MODULE,
	unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE, unix.SYS__SYSCTL, unix.SYS_NFSSERVCTL,
}
