package console

import (
	"context"
	"slices"

	"k8s4r.io/k8s4r/internal/console/row"
)

type overviewIn struct {
	Namespace string `query:"namespace" doc:"If empty, all namespaces that the caller can see"`
}

// overview summarizes the live objects.
type overview struct {
	// Counts by kind and state, Severities by kind and severity. Kinds that the caller may not list
	// are omitted.
	Counts     map[row.Kind]map[string]int       `json:"counts"`
	Severities map[row.Kind]map[row.Severity]int `json:"severities"`
	// Robots by phase.
	Robots map[string]int `json:"robots"`
	// Failed holds the jobs and flows that failed last, Running those that run now.
	Failed  []*row.Row `json:"failed"`
	Running []*row.Row `json:"running"`
}

// overviewLimit bounds the lists of an overview.
const overviewLimit = 10

func (s *Server) getOverview(ctx context.Context, in *overviewIn) (*overview, error) {
	out := &overview{Counts: map[row.Kind]map[string]int{}, Severities: map[row.Kind]map[row.Severity]int{}, Robots: map[string]int{}, Failed: []*row.Row{}, Running: []*row.Row{}}
	for _, k := range row.Kinds {
		sees, err := s.findScope(ctx, k, "")
		if err != nil {
			return nil, err
		}
		states, severities := map[string]int{}, map[row.Severity]int{}
		for _, i := range s.store.List(k, in.Namespace) {
			if r := i.Row; sees.includes(r.Namespace) {
				states[r.State]++
				severities[r.Severity]++
				out.addRow(r)
			}
		}
		if len(states) > 0 {
			out.Counts[k], out.Severities[k] = states, severities
		}
	}
	if states := out.Counts[row.Robots]; states != nil {
		out.Robots = states
	}
	out.Failed = keepNewest(out.Failed, func(r *row.Row) int64 { return fromMicroTime(r.Finished).UnixMicro() })
	out.Running = keepNewest(out.Running, func(r *row.Row) int64 { return fromMicroTime(r.Started).UnixMicro() })
	return out, nil
}

// addRow adds failed and running jobs and flows.
func (o *overview) addRow(r *row.Row) {
	if r.Kind != row.Jobs && r.Kind != row.JobFlows && r.Kind != row.VCJobs || r.Flow != "" && r.Kind != row.JobFlows {
		return // jobs of a flow are represented by the flow
	}
	if r.Severity == row.Bad {
		o.Failed = append(o.Failed, r)
	}
	if r.Severity == row.Running {
		o.Running = append(o.Running, r)
	}
}

func keepNewest(rows []*row.Row, when func(*row.Row) int64) []*row.Row {
	slices.SortFunc(rows, func(a, b *row.Row) int { return int(when(b) - when(a)) })
	return rows[:min(len(rows), overviewLimit)]
}
