package lifecycle

// VCJobPhase is the phase of a Job of batch.volcano.sh (docs/spec/vcjob.md).
// The words are those of its API.
type VCJobPhase string

// The phases of a vcjob.
const (
	// VCJobPending: fewer Pods run, or have ended, than minAvailable.
	VCJobPending VCJobPhase = "Pending"
	// VCJobRunning: enough do.
	VCJobRunning VCJobPhase = "Running"
	// VCJobRestarting: Pods are being stopped, to be started anew.
	VCJobRestarting VCJobPhase = "Restarting"
	// VCJobAborting: all Pods are being stopped.
	VCJobAborting VCJobPhase = "Aborting"
	// VCJobAborted: none runs, until the Job is resumed.
	VCJobAborted VCJobPhase = "Aborted"
	// VCJobCompleting: the rest of the Pods is being stopped, what is done is enough.
	VCJobCompleting VCJobPhase = "Completing"
	// VCJobCompleted ended well. For good.
	VCJobCompleted VCJobPhase = "Completed"
	// VCJobTerminating: all Pods are being stopped for good.
	VCJobTerminating VCJobPhase = "Terminating"
	// VCJobTerminated was stopped. For good.
	VCJobTerminated VCJobPhase = "Terminated"
	// VCJobFailed ended badly. For good.
	VCJobFailed VCJobPhase = "Failed"
)

// VCJobPhases lists every phase of a vcjob.
var VCJobPhases = []VCJobPhase{
	VCJobPending, VCJobRunning, VCJobRestarting, VCJobAborting, VCJobAborted,
	VCJobCompleting, VCJobCompleted, VCJobTerminating, VCJobTerminated, VCJobFailed,
}

// Works tells whether Pods of a vcjob in phase p are created, and whether what
// happens to them is a reason to act. The empty phase is that of a Job that
// nobody has looked at yet.
func (p VCJobPhase) Works() bool { return p == "" || p == VCJobPending || p == VCJobRunning }

// Finished tells whether nothing leads out of p.
func (p VCJobPhase) Finished() bool {
	return p == VCJobCompleted || p == VCJobTerminated || p == VCJobFailed
}

// Rests tells whether a vcjob in phase p has come to its end, be it that
// somebody resumes it.
func (p VCJobPhase) Rests() bool { return p.Finished() || p == VCJobAborted }

// VCJobSignal is a reason for a vcjob to change its phase: an action that a
// policy or a Command asks for, or what its Pods say.
type VCJobSignal string

// The signals of a vcjob.
const (
	// VCJobRestart is an action: the Job, a task, a Pod or a partition.
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
	// VCJobUnready: so many are pending that minAvailable cannot run.
	VCJobUnready VCJobSignal = "unready"
	// VCJobSucceeded: enough Pods have succeeded.
	VCJobSucceeded VCJobSignal = "succeeded"
	// VCJobUnsuccessful: all Pods have ended and too few of them well, or what has
	// not started never can.
	VCJobUnsuccessful VCJobSignal = "unsuccessful"
	// VCJobInvalid: no Pod can be made of its spec.
	VCJobInvalid VCJobSignal = "invalid"
	// VCJobStopped: no Pod is pending, running or terminating any more.
	VCJobStopped VCJobSignal = "stopped"
	// VCJobRestartable: so few Pods are terminating that minAvailable can start.
	VCJobRestartable VCJobSignal = "restartable"
	// VCJobExhausted: it was restarted as often as maxRetry allows.
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

// StepVCJob returns the phase that follows from signal g in phase p, and whether
// the table has that edge. Without one it returns p. The empty phase reads as
// Pending.
func StepVCJob(p VCJobPhase, g VCJobSignal) (VCJobPhase, bool) {
	if p == "" {
		p = VCJobPending
	}
	return vcjobTable.step(p, g)
}
