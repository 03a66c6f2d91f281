package lifecycle

// VCJobPhase is the phase of a Job of batch.volcano.sh (docs/reference/kinds/vcjob.md), as in its API.
type VCJobPhase string

// The phases of a vcjob.
const (
	// VCJobPending: fewer than minAvailable Pods run or have ended.
	VCJobPending VCJobPhase = "Pending"
	// VCJobRunning: at least minAvailable Pods run or have ended.
	VCJobRunning VCJobPhase = "Running"
	// VCJobRestarting: Pods are being stopped, to be started again.
	VCJobRestarting VCJobPhase = "Restarting"
	// VCJobAborting: all Pods are being stopped.
	VCJobAborting VCJobPhase = "Aborting"
	// VCJobAborted: no Pod runs until the Job is resumed.
	VCJobAborted VCJobPhase = "Aborted"
	// VCJobCompleting: the remaining Pods are being stopped, because enough have succeeded.
	VCJobCompleting VCJobPhase = "Completing"
	// VCJobCompleted has succeeded. Final.
	VCJobCompleted VCJobPhase = "Completed"
	// VCJobTerminating: all Pods are being stopped for good.
	VCJobTerminating VCJobPhase = "Terminating"
	// VCJobTerminated was stopped. Final.
	VCJobTerminated VCJobPhase = "Terminated"
	// VCJobFailed has failed. Final.
	VCJobFailed VCJobPhase = "Failed"
)

// VCJobPhases lists every phase of a vcjob.
var VCJobPhases = []VCJobPhase{
	VCJobPending, VCJobRunning, VCJobRestarting, VCJobAborting, VCJobAborted,
	VCJobCompleting, VCJobCompleted, VCJobTerminating, VCJobTerminated, VCJobFailed,
}

// ManagesPods reports whether Pods of a pod job in phase p are created, and policies are applied
// to their events. The empty phase is that of a new Job.
func (p VCJobPhase) ManagesPods() bool { return p == "" || p == VCJobPending || p == VCJobRunning }

// IsFinished reports whether no signal leads out of p.
func (p VCJobPhase) IsFinished() bool {
	return p == VCJobCompleted || p == VCJobTerminated || p == VCJobFailed
}

// IsSettled reports whether a pod job in phase p is finished or aborted. An aborted one can be
// resumed.
func (p VCJobPhase) IsSettled() bool { return p.IsFinished() || p == VCJobAborted }

// VCJobSignal is a reason for a pod job to change its phase: an action of a policy or a Command,
// or a change of its Pods.
type VCJobSignal string

// The signals of a vcjob.
const (
	// VCJobRestart is an action: restart the Job, a task, a Pod or a partition.
	VCJobRestart VCJobSignal = "restart"
	// VCJobAbort is an action.
	VCJobAbort VCJobSignal = "abort"
	// VCJobComplete is an action.
	VCJobComplete VCJobSignal = "complete"
	// VCJobTerminate is an action.
	VCJobTerminate VCJobSignal = "terminate"
	// VCJobResume is an action.
	VCJobResume VCJobSignal = "resume"
	// VCJobReady: minAvailable Pods run or have ended.
	VCJobReady VCJobSignal = "ready"
	// VCJobUnready: so many Pods are pending that minAvailable cannot run.
	VCJobUnready VCJobSignal = "unready"
	// VCJobSucceeded: enough Pods have succeeded.
	VCJobSucceeded VCJobSignal = "succeeded"
	// VCJobUnsuccessful: all Pods have ended and too few have succeeded, or Pods that have not
	// started can never start.
	VCJobUnsuccessful VCJobSignal = "unsuccessful"
	// VCJobInvalid: no Pod can be created from its spec.
	VCJobInvalid VCJobSignal = "invalid"
	// VCJobStopped: no Pod is pending, running or terminating.
	VCJobStopped VCJobSignal = "stopped"
	// VCJobRestartable: so few Pods are terminating that minAvailable can start.
	VCJobRestartable VCJobSignal = "restartable"
	// VCJobExhausted: it was restarted maxRetry times.
	VCJobExhausted VCJobSignal = "exhausted"
)

// VCJobSignals lists every signal of a vcjob.
var VCJobSignals = []VCJobSignal{
	VCJobRestart, VCJobAbort, VCJobComplete, VCJobTerminate, VCJobResume, VCJobReady, VCJobUnready,
	VCJobSucceeded, VCJobUnsuccessful, VCJobInvalid, VCJobStopped, VCJobRestartable, VCJobExhausted,
}

var vcjobTable = table[VCJobPhase, VCJobSignal]{
	VCJobPending: {
		VCJobRestart:      VCJobRestarting,
		VCJobAbort:        VCJobAborting,
		VCJobComplete:     VCJobCompleting,
		VCJobTerminate:    VCJobTerminating,
		VCJobReady:        VCJobRunning,
		VCJobUnsuccessful: VCJobFailed,
		VCJobInvalid:      VCJobFailed,
	},
	VCJobRunning: {
		VCJobRestart:      VCJobRestarting,
		VCJobAbort:        VCJobAborting,
		VCJobComplete:     VCJobCompleting,
		VCJobTerminate:    VCJobTerminating,
		VCJobUnready:      VCJobPending,
		VCJobSucceeded:    VCJobCompleted,
		VCJobUnsuccessful: VCJobFailed,
		VCJobInvalid:      VCJobFailed,
	},
	// A Command that comes while Pods are being stopped is not lost.
	VCJobRestarting: {
		VCJobAbort:       VCJobAborting,
		VCJobComplete:    VCJobCompleting,
		VCJobTerminate:   VCJobTerminating,
		VCJobRestartable: VCJobPending,
		VCJobExhausted:   VCJobFailed,
	},
	VCJobAborting:    {VCJobResume: VCJobRestarting, VCJobStopped: VCJobAborted},
	VCJobAborted:     {VCJobResume: VCJobRestarting},
	VCJobCompleting:  {VCJobStopped: VCJobCompleted},
	VCJobTerminating: {VCJobStopped: VCJobTerminated},
}

// StepVCJob returns the phase that follows from signal g in phase p, and whether p accepts g. If
// not, it returns p. The empty phase counts as pending.
func StepVCJob(p VCJobPhase, g VCJobSignal) (VCJobPhase, bool) {
	if p == "" {
		p = VCJobPending
	}
	return vcjobTable.nextState(p, g)
}
