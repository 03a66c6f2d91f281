package lifecycle

// FlowPhase is the phase of a flow of jobs.
type FlowPhase string

// The phases of a flow (docs/reference/kinds/jobflow.md). The names are Volcano's.
const (
	// FlowPending: no step runs or has completed. Also the empty phase.
	FlowPending FlowPhase = "Pending"
	// FlowRunning: a step runs or has completed.
	FlowRunning FlowPhase = "Running"
	// FlowSucceed: every step has completed or was skipped. Terminal until a retry.
	FlowSucceed FlowPhase = "Succeed"
	// FlowFailed: a step has failed, or the flow was canceled. Terminal until a retry.
	FlowFailed FlowPhase = "Failed"
	// FlowTerminating: its Jobs are being stopped, because it was canceled or is
	// being deleted.
	FlowTerminating FlowPhase = "Terminating"
)

// FlowPhases lists every phase of a flow.
var FlowPhases = []FlowPhase{FlowPending, FlowRunning, FlowSucceed, FlowFailed, FlowTerminating}

// IsTerminal reports whether only a retry or a deletion leads out of p.
func (p FlowPhase) IsTerminal() bool { return p == FlowSucceed || p == FlowFailed }

// StartsSteps reports whether steps of a flow in phase p may be started.
func (p FlowPhase) StartsSteps() bool { return p == "" || p == FlowPending || p == FlowRunning }

// FlowSignal is a reason for a flow to change its phase: an action of the user, or a change of
// its steps.
type FlowSignal string

// The signals of a flow. The manager sends all of them.
const (
	// FlowStarted: a step runs or has completed, and none has failed.
	FlowStarted FlowSignal = "started"
	// FlowStepsEnded: every step has completed or was skipped.
	FlowStepsEnded FlowSignal = "steps-ended"
	// FlowStepFailed: a step has failed for good, and no step is left that may be started.
	FlowStepFailed FlowSignal = "step-failed"
	// FlowCancel is an action of the user: stop every Job.
	FlowCancel FlowSignal = "cancel"
	// FlowDelete: the flow is being deleted.
	FlowDelete FlowSignal = "delete"
	// FlowStopped: all Jobs of the canceled flow have ended.
	FlowStopped FlowSignal = "stopped"
	// FlowRetry is an action of the user: run some steps again.
	FlowRetry FlowSignal = "retry"
)

// FlowSignals lists every signal of a flow.
var FlowSignals = []FlowSignal{FlowStarted, FlowStepsEnded, FlowStepFailed, FlowCancel, FlowDelete, FlowStopped, FlowRetry}

// A flow without steps ends while it is pending. A failed flow can be canceled, because its failure
// does not stop the running Jobs.
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

// StepFlow returns the phase that follows from signal g in phase p, and whether p accepts g. If
// not, it returns p. The empty phase counts as pending.
func StepFlow(p FlowPhase, g FlowSignal) (FlowPhase, bool) {
	if p == "" {
		p = FlowPending
	}
	return flowTable.nextState(p, g)
}
