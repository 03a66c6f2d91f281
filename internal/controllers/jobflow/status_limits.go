package jobflow

import (
	"encoding/json"
	"fmt"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
	"k8s4r.io/k8s4r/internal/platform/events"
)

// Limits are in bytes of JSON, as the API server stores it. It rejects a larger status
// every time, and the flow would be stuck forever.
const (
	// maxStatusBytes is the approximate limit of a status. etcd stores at most 1.5 MB per
	// object, including spec and managed fields.
	maxStatusBytes = 1_000_000
	// maxOutputBytes bounds the outputs of all steps. minOutputBytes of them are kept even
	// if the names of the steps fill the status.
	maxOutputBytes = 256 << 10
	minOutputBytes = 64 << 10
	// maxCountBytes bounds the Pod counts of all Jobs.
	maxCountBytes = 128 << 10
	// maxMessageBytes and minMessageBytes bound the message of a step. The more steps, the
	// shorter.
	maxMessageBytes = 1024
	minMessageBytes = 96
	// bareStepBytes is the size of a step apart from its name and three times the name of
	// its Job: UIDs, times, phases and field names.
	bareStepBytes = 420
	// historyEntryBytes is the size of one history entry.
	historyEntryBytes = 104
)

// statusLimits bounds what steps may add to the status. It depends on the spec alone, so
// that messages stay the same from write to write.
type statusLimits struct {
	outputBytes  int // of all steps
	messageBytes int // of one step
}

func newStatusLimits(flow string, g *Graph) statusLimits {
	left := maxStatusBytes
	for i := range g.steps {
		left -= bareStepSize(JobName(flow, g.steps[i].Name), g.steps[i].Name)
	}
	out := statusLimits{outputBytes: min(maxOutputBytes, max(minOutputBytes, left)), messageBytes: maxMessageBytes}
	if n := len(g.steps); n > 0 {
		out.messageBytes = min(maxMessageBytes, max(minMessageBytes, (left-out.outputBytes)/n))
	}
	return out
}

// bareStepSize returns the size of a step without message and outputs.
func bareStepSize(job, step string) int { return 3*len(job) + len(step) + bareStepBytes }

// jsonSize returns the size of a text in JSON.
func jsonSize(text string) int {
	b, _ := json.Marshal(text) // cannot fail for a string
	return len(b)
}

// clipToSize shortens a text to a size in JSON. Escaped characters take up to six bytes.
func clipToSize(text string, most int) string {
	for w := jsonSize(text); w > most && text != ""; w = jsonSize(text) {
		text = events.ClipText(text, len(text)*most/w)
	}
	return text
}

// outputsSize returns the size of outputs in JSON.
func outputsSize(outputs map[string]string) int {
	n := 0
	for name, value := range outputs {
		n += jsonSize(name) + jsonSize(value) + len(":,")
	}
	return n
}

// setReason sets reason and message of a step, shortened to the limit.
func (p *plan) setReason(s *step, reason, message string) {
	s.status.Reason, s.status.Message = reason, clipToSize(message, p.limits.messageBytes)
}

// storeOutputs stores the outputs of a step in its status if they fit, and reports those that
// do not.
func (p *plan) storeOutputs(s *step, outputs stepjob.Outputs) {
	if p.outputBytes < 0 {
		p.outputBytes = 0
		for _, other := range p.steps {
			p.outputBytes += outputsSize(other.status.Outputs)
		}
	}
	if w := outputsSize(outputs.Values); p.outputBytes+w <= p.limits.outputBytes {
		p.outputBytes += w
		s.status.Outputs = outputs.Values
		if outputs.Omission != "" {
			p.reportOmission(s, outputs.Omission)
		}
		return
	}
	p.reportOmission(s, fmt.Sprintf("its outputs are omitted: the outputs of all steps of a flow are limited to %d KiB; reduce them, and pass large values in files", p.limits.outputBytes>>10))
}

// reportOmission reports that outputs of a step are omitted, or some of them.
func (p *plan) reportOmission(s *step, message string) {
	p.setReason(s, ReasonOutputsOmitted, message)
	p.out.Events = append(p.out.Events, Event{Warning: true, Reason: ReasonOutputsOmitted, Message: "step " + s.Name + ": " + s.status.Message, Job: s.jobName})
}

// limitCounts returns the Pod counts of a Job if they fit, else nil.
func (p *plan) limitCounts(of map[string]batchv1.TaskState) map[string]batchv1.TaskState {
	w := 0
	for task := range of {
		w += jsonSize(task) + len(`:{"phase":{}},`)
		for phase := range of[task].Phase {
			w += jsonSize(string(phase)) + len(":10000,")
		}
	}
	if p.countBytes+w > maxCountBytes {
		return nil
	}
	p.countBytes += w
	return of
}

// trimHistories trims all histories to the same number of newest entries, so that the
// status fits.
func (p *plan) trimHistories() {
	all, left := p.nextStatus.JobStatusList, maxStatusBytes-p.countBytes
	entries := 0
	for i := range all {
		left -= bareStepSize(all[i].Name, "")
		entries += len(all[i].RunningHistories)
	}
	if entries*historyEntryBytes <= maxStatusBytes/8 {
		return // the common case
	}
	for i := range p.nextStatus.Steps {
		s := &p.nextStatus.Steps[i]
		left -= len(s.Name) + jsonSize(s.Message) + outputsSize(s.Outputs)
	}
	most := maxHistory
	for most > 1 && countEntries(all, most)*historyEntryBytes > left {
		most--
	}
	for i := range all {
		h := all[i].RunningHistories
		all[i].RunningHistories = h[max(0, len(h)-most):]
	}
}

// countEntries counts the entries of all histories, each trimmed to most.
func countEntries(all []flowv1.JobStatus, most int) int {
	n := 0
	for i := range all {
		n += min(len(all[i].RunningHistories), most)
	}
	return n
}
