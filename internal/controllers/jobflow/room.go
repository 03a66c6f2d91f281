package jobflow

import (
	"encoding/json"
	"fmt"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/notes"
)

// The rooms are in bytes of JSON, as the API server stores it. It refuses a status that
// is too large each time, and the flow would be stuck for ever.
const (
	// statusRoom is what a status may weigh, about. The store takes 1.5 MB of an
	// object, which has its spec and what is managed in it as well.
	statusRoom = 1_000_000
	// outputsRoom is for the outputs of all steps together, and leastOutputs what is
	// left of it in a flow whose names alone fill the status.
	outputsRoom  = 256 << 10
	leastOutputs = 64 << 10
	// countsRoom is for the counts of the Pods of all Jobs.
	countsRoom = 128 << 10
	// maxMessage and leastMessage bound what one step says. Those of many steps say
	// less each.
	maxMessage   = 1024
	leastMessage = 96
	// bareStep is what a step weighs beyond its name and three times that of its Job:
	// UIDs, times, phases and field names.
	bareStep = 420
	// entry of a history.
	entryWeight = 104
)

// room is what the steps of a flow may say in its status. It follows from the spec
// alone, so that what was said is not said anew in other words.
type room struct {
	outputs int // of all steps
	message int // of one step
}

func roomOf(flow string, g *Graph) room {
	left := statusRoom
	for i := range g.steps {
		left -= bare(JobName(flow, g.steps[i].Name), g.steps[i].Name)
	}
	out := room{outputs: min(outputsRoom, max(leastOutputs, left)), message: maxMessage}
	if n := len(g.steps); n > 0 {
		out.message = min(maxMessage, max(leastMessage, (left-out.outputs)/n))
	}
	return out
}

// bare weight of a step of which there is nothing much to say.
func bare(job, step string) int { return 3*len(job) + len(step) + bareStep }

// weight of a text in JSON.
func weight(text string) int {
	b, _ := json.Marshal(text) // a string always has one
	return len(b)
}

// clip shortens a text to a weight. What is not written as it is weighs up to six
// times its length.
func clip(text string, most int) string {
	for w := weight(text); w > most && text != ""; w = weight(text) {
		text = notes.Clip(text, len(text)*most/w)
	}
	return text
}

// weightOf outputs.
func weightOf(outputs map[string]string) int {
	n := 0
	for name, value := range outputs {
		n += weight(name) + weight(value) + len(":,")
	}
	return n
}

// note says in the status of a step what is the matter with it.
func (p *plan) note(s *step, reason, message string) {
	s.status.Reason, s.status.Message = reason, clip(message, p.room.message)
}

// hold keeps the outputs of a step, if the flow has room for them.
func (p *plan) hold(s *step, outputs map[string]string) {
	if p.held < 0 {
		p.held = 0
		for _, other := range p.steps {
			p.held += weightOf(other.status.Outputs)
		}
	}
	w := weightOf(outputs)
	if p.held+w <= p.room.outputs {
		p.held += w
		s.status.Outputs = outputs
		return
	}
	p.note(s, ReasonOutputsLeftOut, fmt.Sprintf("its outputs are left out: those of all steps of a flow may have %d KiB; put out less, and leave what is large in files", p.room.outputs>>10))
	p.out.Events = append(p.out.Events, Event{Warning: true, Reason: ReasonOutputsLeftOut, Note: "step " + s.Name + ": " + s.status.Message, Job: s.job})
}

// counts of the Pods of a Job, if there is room for them.
func (p *plan) counts(of map[string]batchv1.TaskState) map[string]batchv1.TaskState {
	w := 0
	for task := range of {
		w += weight(task) + len(`:{"phase":{}},`)
		for phase := range of[task].Phase {
			w += weight(string(phase)) + len(":10000,")
		}
	}
	if p.counted+w > countsRoom {
		return nil
	}
	p.counted += w
	return of
}

// shorten lets the histories have what the rest leaves of the room: each its newest
// entries, all as many.
func (p *plan) shorten() {
	all, left := p.next.JobStatusList, statusRoom-p.counted
	entries := 0
	for i := range all {
		left -= bare(all[i].Name, "")
		entries += len(all[i].RunningHistories)
	}
	if entries*entryWeight <= statusRoom/8 {
		return // as in most flows
	}
	for i := range p.next.Steps {
		s := &p.next.Steps[i]
		left -= len(s.Name) + weight(s.Message) + weightOf(s.Outputs)
	}
	most := maxHistory
	for most > 1 && entriesOf(all, most)*entryWeight > left {
		most--
	}
	for i := range all {
		h := all[i].RunningHistories
		all[i].RunningHistories = h[max(0, len(h)-most):]
	}
}

// entriesOf counts the entries of histories of at most so many.
func entriesOf(all []flowv1.JobStatus, most int) int {
	n := 0
	for i := range all {
		n += min(len(all[i].RunningHistories), most)
	}
	return n
}
