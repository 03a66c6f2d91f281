package isolation

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	// firstForeignCall is beyond all numbers: this architecture has only one ABI.
	firstForeignCall = 0xffffffff
)

// archCalls are denied calls that only this architecture has.
var archCalls = []uint32{unix.SYS_NFSSERVCTL}
