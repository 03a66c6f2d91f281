package console

import (
	"context"
	"slices"

	"k8s4r.io/k8s4r/internal/events/row"
)

type overviewIn struct {
	Namespace string `query:"namespace" doc:"Empty: all that the caller sees"`
}

// overview is what there is at a glance.
type overview struct {
	// Counts by kind and state, Tones by kind and tone. A kind that the caller may not list is
	// left out.
	Counts map[row.Kind]map[string]int   `json:"counts"`
	Tones  map[row.Kind]map[row.Tone]int `json:"tones"`
	// Robots by phase.
	Robots map[string]int `json:"robots"`
	// Failed last: jobs and flows. Running: those that do.
	Failed  []*row.Row `json:"failed"`
	Running []*row.Row `json:"running"`
}

// glance bounds the lists of an overview.
const glance = 10

func (s *Server) overview(ctx context.Context, in *overviewIn) (*overview, error) {
	out := &overview{Counts: map[row.Kind]map[string]int{}, Tones: map[row.Kind]map[row.Tone]int{}, Robots: map[string]int{}, Failed: []*row.Row{}, Running: []*row.Row{}}
	for _, k := range row.Kinds {
		sees, err := s.sees(ctx, k, "")
		if err != nil {
			return nil, err
		}
		states, tones := map[string]int{}, map[row.Tone]int{}
		for _, i := range s.world.List(k, in.Namespace) {
			if r := i.Row; sees.holds(r.Namespace) {
				states[r.State]++
				tones[r.Tone]++
				out.notice(r)
			}
		}
		if len(states) > 0 {
			out.Counts[k], out.Tones[k] = states, tones
		}
	}
	if states := out.Counts[row.Robots]; states != nil {
		out.Robots = states
	}
	out.Failed = newest(out.Failed, func(r *row.Row) int64 { return moment(r.Finished).UnixMicro() })
	out.Running = newest(out.Running, func(r *row.Row) int64 { return moment(r.Started).UnixMicro() })
	return out, nil
}

// notice keeps what an overview names.
func (o *overview) notice(r *row.Row) {
	if r.Kind != row.Jobs && r.Kind != row.JobFlows && r.Kind != row.VCJobs || r.Flow != "" && r.Kind != row.JobFlows {
		return // a flow stands for its jobs
	}
	if r.Tone == row.Bad {
		o.Failed = append(o.Failed, r)
	}
	if r.Tone == row.Running {
		o.Running = append(o.Running, r)
	}
}

func newest(rows []*row.Row, when func(*row.Row) int64) []*row.Row {
	slices.SortFunc(rows, func(a, b *row.Row) int { return int(when(b) - when(a)) })
	return rows[:min(len(rows), glance)]
}
