package lifecycle

import "strings"

// RobotPhase is the connection state of a robot.
type RobotPhase string

// The phases of a robot (docs/reference/kinds/robot.md).
const (
	// RobotPending has registered and is not approved yet.
	RobotPending RobotPhase = "Pending"
	// RobotOnline is approved and connected.
	RobotOnline RobotPhase = "Online"
	// RobotOffline has been disconnected for --offline-after or longer.
	RobotOffline RobotPhase = "Offline"
	// RobotUnknown has been disconnected for less than that, or the server is not connected to the
	// broker.
	RobotUnknown RobotPhase = "Unknown"
)

// RobotPhases lists every phase of a robot.
var RobotPhases = []RobotPhase{RobotPending, RobotOnline, RobotOffline, RobotUnknown}

// RobotSignal is a reason for a robot to change its phase. The manager derives it from what the
// server has written.
type RobotSignal string

// The signals of a robot.
const (
	// RobotApproved: it may be given tasks.
	RobotApproved RobotSignal = "approved"
	// RobotConnected: the server receives its messages again.
	RobotConnected RobotSignal = "connected"
	// RobotDisconnected: its connection broke or was closed.
	RobotDisconnected RobotSignal = "disconnected"
	// RobotUnresponsive: no message for --offline-after.
	RobotUnresponsive RobotSignal = "unresponsive"
)

// RobotSignals lists every signal of a robot.
var RobotSignals = []RobotSignal{RobotApproved, RobotConnected, RobotDisconnected, RobotUnresponsive}

var robotTable = table[RobotPhase, RobotSignal]{
	RobotPending: {RobotApproved: RobotOnline},
	RobotOnline:  {RobotDisconnected: RobotUnknown, RobotUnresponsive: RobotOffline},
	RobotUnknown: {RobotConnected: RobotOnline, RobotUnresponsive: RobotOffline},
	RobotOffline: {RobotConnected: RobotOnline},
}

// StepRobot returns the phase that follows from signal g in phase p, and whether p accepts g. If
// not, it returns p.
func StepRobot(p RobotPhase, g RobotSignal) (RobotPhase, bool) { return robotTable.nextState(p, g) }

// ParseRobotPhase parses a phase in upper or lower case, because objects have both spellings. It
// returns RobotPending for the empty string and RobotUnknown, which gets no tasks, for other values.
func ParseRobotPhase(s string) RobotPhase {
	if s == "" {
		return RobotPending
	}
	for _, p := range RobotPhases {
		if strings.EqualFold(s, string(p)) {
			return p
		}
	}
	return RobotUnknown
}
