package shim

import (
	"bytes"
	"cmp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// shutdownWait is the default of Spec.ShutdownWait. A robot that shuts down signals all its processes
// at about the same time, in any order.
const shutdownWait = 2 * time.Second

// codeTerminated is the exit code of a process that SIGTERM ended, and of programs that handle SIGTERM
// and then exit with it, as a JVM does.
const codeTerminated = 128 + int(syscall.SIGTERM)

// verdict is whose fault the failed end of a process is.
type verdict int

const (
	undecided      verdict = iota // it may still prove to be the robot's
	faultOfTask                   // or of its set-up
	robotShutsDown                // without fault
)

// judgeFailure returns whose fault a failed end is. The robot is stopping if the shim has received
// SIGTERM, or a request because the agent is stopping. left is what is left of Spec.ShutdownWait; only
// an end by SIGTERM is worth waiting for.
func judgeFailure(end driver.End, isRobotStopping bool, left time.Duration) verdict {
	switch {
	case end.Code == 0 || end.OOM:
		return faultOfTask
	case isRobotStopping:
		return robotShutsDown
	case end.Code != codeTerminated || left <= 0:
		return faultOfTask
	}
	return undecided
}

// detectShutdown sets the stop reason if a process failed because the robot or its agent is being
// stopped. It blocks only after an end by SIGTERM. If the shim is killed meanwhile, the end is unknown,
// which is no fault either.
func (s *shim) detectShutdown(end driver.End) {
	if end.Code == 0 || s.stopReason != "" {
		return
	}
	for until := SinceBoot() + cmp.Or(s.spec.ShutdownWait, shutdownWait); ; {
		left := until - SinceBoot() // taken before the reads: what came while the shim was stopped counts
		s.readShutdown()
		switch judgeFailure(end, s.isRobotStopping, left) {
		case faultOfTask:
			return
		case robotShutsDown:
			s.stopReason = wire.ReasonAgentStopped
			return
		case undecided:
		}
		fds := []unix.PollFd{{Fd: int32(s.signals.readFD), Events: unix.POLLIN}, {Fd: int32(s.control), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, int(left.Milliseconds())+1)
	}
}

// readShutdown handles the signals and requests that have arrived since the process ended.
func (s *shim) readShutdown() {
	if bytes.IndexByte(s.signals.readSent(), byte(syscall.SIGTERM)) >= 0 {
		s.stopTask(wire.ReasonAgentStopped, s.spec.KillTimeout)
	}
	s.readRequests()
}
