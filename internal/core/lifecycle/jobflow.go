package lifecycle

// FlowPhase is where a flow of jobs stands.
type FlowPhase string

// The phases of a flow (docs/spec/jobflow.md). Volcano's documents give them their
// names.
const (
	// FlowPending: no step runs or has completed. The empty phase reads so.
	FlowPending FlowPhase = "Pending"
	// FlowRunning: a step runs or has completed.
	FlowRunning FlowPhase = "Running"
	// FlowSucceed: every step has completed or was skipped. Final until a retry.
	FlowSucceed FlowPhase = "Succeed"
	// FlowFailed: a step has failed, or the flow was canceled. Final until a retry.
	FlowFailed FlowPhase = "Failed"
	// FlowTerminating: its Jobs are being stopped, because it was canceled or is
	// being deleted.
	FlowTerminating FlowPhase = "Terminating"
)

// FlowPhases lists every phase of a flow.
var FlowPhases = []FlowPhase{FlowPending, FlowRunning, FlowSucceed, FlowFailed, FlowTerminating}

// Terminal tells whether only a retry, or the end of the flow, leads out of p.
func (p FlowPhase) Terminal() bool { return p == FlowSucceed || p == FlowFailed }

// Starts tells whether steps of a flow in phase p may be started.
func (p FlowPhase) Starts() bool { return p == "" || p == FlowPending || p == FlowRunning }

// FlowSignal is a reason for a flow to change its phase: a wish of its user, or what
// its steps say.
type FlowSignal string

// The signals of a flow. All are the manager's.
const (
	// FlowStarted: a step runs or has completed, and none has failed.
	FlowStarted FlowSignal = "started"
	// FlowStepsEnded: every step has completed or was skipped.
	FlowStepsEnded FlowSignal = "steps-ended"
	// FlowStepFailed: a step has failed for good, and nothing is left to be started
	// because of it.
	FlowStepFailed FlowSignal = "step-failed"
	// FlowCancel is a wish: stop every Job.
	FlowCancel FlowSignal = "cancel"
	// FlowDelete: the flow is being deleted.
	FlowDelete FlowSignal = "delete"
	// FlowStopped: no Job of the canceled flow is alive any more.
	FlowStopped FlowSignal = "stopped"
	// FlowRetry is a wish: run some steps again.
	FlowRetry FlowSignal = "retry"
)

// FlowSignals lists every signal of a flow.
var FlowSignals = []FlowSignal{FlowStarted, FlowStepsEnded, FlowStepFailed, FlowCancel, FlowDelete, FlowStopped, FlowRetry}

// A flow without steps ends while it is pending. A failed one can be canceled,
// because its failure lets the Jobs that run go on.
var flowTable = table[FlowPhase, FlowSignal]{
	FlowPending: {
		FlowStarted:    FlowRunning,
		FlowStepsEnded: FlowSucceed,
		FlowStepFailed: FlowFailed,
		FlowCancel:     FlowTerminating,
		FlowDelete:     FlowTerminating,
		FlowRetry:      FlowPending,
	},
	FlowRunning: {
		FlowStepsEnded: FlowSucceed,
		FlowStepFailed: FlowFailed,
		FlowCancel:     FlowTerminating,
		FlowDelete:     FlowTerminating,
		FlowRetry:      FlowRunning,
	},
	FlowSucceed: {FlowDelete: FlowTerminating, FlowRetry: FlowPending},
	FlowFailed: {
		FlowCancel: FlowTerminating,
		FlowDelete: FlowTerminating,
		FlowRetry:  FlowPending,
	},
	FlowTerminating: {FlowStopped: FlowFailed},
}

// StepFlow returns the phase that follows from signal g in phase p, and whether the
// table has that edge. Without one it returns p. The empty phase reads as pending.
func StepFlow(p FlowPhase, g FlowSignal) (FlowPhase, bool) {
	if p == "" {
		p = FlowPending
	}
	return flowTable.step(p, g)
}
