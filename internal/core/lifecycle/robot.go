package lifecycle

import "strings"

// RobotPhase says whether a robot can be given work.
type RobotPhase string

// The phases of a robot (docs/spec/robot.md).
const (
	// RobotPending has registered and is not approved yet.
	RobotPending RobotPhase = "Pending"
	// RobotOnline is approved and in contact.
	RobotOnline RobotPhase = "Online"
	// RobotOffline has been silent for offlineAfter or longer.
	RobotOffline RobotPhase = "Offline"
	// RobotUnknown is out of contact, but not for long: its last will arrived,
	// or the server that speaks to it is away.
	RobotUnknown RobotPhase = "Unknown"
)

// RobotPhases lists every phase of a robot.
var RobotPhases = []RobotPhase{RobotPending, RobotOnline, RobotOffline, RobotUnknown}

// RobotSignal is a reason for a robot to change its phase. All are the
// manager's, drawn from what the server wrote down.
type RobotSignal string

// The signals of a robot.
const (
	// RobotApproved: it may be given work.
	RobotApproved RobotSignal = "approved"
	// RobotHeard: it is in contact again.
	RobotHeard RobotSignal = "heard"
	// RobotDropped: its connection broke.
	RobotDropped RobotSignal = "dropped"
	// RobotSilent: no contact for offlineAfter.
	RobotSilent RobotSignal = "silent"
)

// RobotSignals lists every signal of a robot.
var RobotSignals = []RobotSignal{RobotApproved, RobotHeard, RobotDropped, RobotSilent}

var robotTable = table[RobotPhase, RobotSignal]{
	RobotPending: {RobotApproved: RobotOnline},
	RobotOnline:  {RobotDropped: RobotUnknown, RobotSilent: RobotOffline},
	RobotUnknown: {RobotHeard: RobotOnline, RobotSilent: RobotOffline},
	RobotOffline: {RobotHeard: RobotOnline},
}

// StepRobot returns the phase that follows from signal g in phase p, and
// whether the table has that edge. Without one it returns p.
func StepRobot(p RobotPhase, g RobotSignal) (RobotPhase, bool) { return robotTable.step(p, g) }

// ParseRobotPhase reads a phase without regard to case, because both
// spellings are in the field. The empty string is RobotPending. What is no
// phase at all reads as RobotUnknown, which gets no work.
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
