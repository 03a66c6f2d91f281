package console

import (
	"cmp"
	"context"
	"fmt"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	flowview "k8s4r.io/k8s4r/internal/core/flow/view"
)

// graph is the dependency graph of a flow.
type graph struct {
	Nodes []node `json:"nodes"`
	Edges []edge `json:"edges"`
}

// node is one step.
type node struct {
	Name     string       `json:"name"`
	Severity row.Severity `json:"severity"`
	State    string       `json:"state"`
	Message  string       `json:"message,omitempty"`
	// WaitsFor names the steps that must end before this step starts.
	WaitsFor []string          `json:"waitingFor"`
	Jobs     []*row.Row        `json:"jobs"`
	Params   map[string]string `json:"params,omitempty"`
	Outputs  map[string]string `json:"outputs,omitempty"`
	Template string            `json:"template,omitempty"`
}

// edge leads from a step to a step that depends on it.
type edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Label is the condition. If empty, the first step must complete.
	Label string `json:"label,omitempty"`
}

type flowIn struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
}

func (s *Server) registerFlows(api huma.API) {
	addRead(s, api, "/objects/jobflows/{namespace}/{name}/graph", "get-graph", "The steps of a flow, their dependencies and states", s.getGraph)
}

func (s *Server) getGraph(ctx context.Context, in *flowIn) (*graph, error) {
	if err := s.requireAccess(ctx, "get", row.JobFlows, in.Namespace, in.Name); err != nil {
		return nil, err
	}
	i := s.store.Get(row.JobFlows, in.Namespace, in.Name)
	if i == nil {
		return nil, apierrors.NewNotFound(kinds[row.JobFlows].version.WithResource("jobflows").GroupResource(), in.Name)
	}
	f, ok := i.Object.(*flowv1.JobFlow)
	if !ok {
		return nil, fmt.Errorf("got %T, want a JobFlow", i.Object)
	}
	view := flowview.New(f, s.now())
	out := &graph{Nodes: make([]node, 0, len(view.Steps)), Edges: []edge{}}
	jobs := s.indexJobsByName(f)
	for i := range view.Steps {
		step := &view.Steps[i]
		n := newNode(f, view, step)
		if job := jobs[step.Job]; job != nil {
			n.Jobs = append(n.Jobs, job)
		}
		out.Nodes = append(out.Nodes, n)
		for _, t := range step.Targets {
			out.Edges = append(out.Edges, edge{view.Steps[t].Name, step.Name, string(step.Condition)})
		}
	}
	return out, nil
}

// indexJobsByName returns the live jobs that the flow controls.
func (s *Server) indexJobsByName(f *flowv1.JobFlow) map[string]*row.Row {
	out := map[string]*row.Row{}
	for _, c := range s.store.Owned(f.UID) {
		if c.Row.Kind == row.Jobs || c.Row.Kind == row.VCJobs {
			out[c.Row.Name] = c.Row
		}
	}
	return out
}

func newNode(f *flowv1.JobFlow, view *flowview.View, step *flowview.Step) node {
	n := node{Name: step.Name, State: step.State, Severity: stepSeverity(step), Message: step.Note, WaitsFor: []string{}, Jobs: []*row.Row{}}
	if step.State == flowview.Waiting {
		for _, t := range step.Targets {
			if !view.Steps[t].HasEnded() {
				n.WaitsFor = append(n.WaitsFor, view.Steps[t].Name)
			}
		}
	}
	n.Params = map[string]string{}
	for k, v := range f.Spec.Params {
		n.Params[k] = v
	}
	for i := range f.Spec.Flows {
		if s := &f.Spec.Flows[i]; s.Name == step.Name {
			n.Template = formatTemplate(s)
			for k, v := range s.Params {
				n.Params[k] = v
			}
		}
	}
	for i := range f.Status.Steps {
		if f.Status.Steps[i].Name == step.Name {
			n.Outputs = f.Status.Steps[i].Outputs
		}
	}
	return n
}

// stepSeverity returns the severity of a step's state.
func stepSeverity(s *flowview.Step) row.Severity {
	switch {
	case s.HasFailed():
		return row.Bad
	case s.State == flowview.Skipped || s.State == flowview.Omitted:
		return row.Gone
	case s.State == flowview.Waiting || s.State == flowview.Retrying:
		return row.Waiting
	}
	return row.VCJobSeverity(s.State)
}

// formatTemplate returns the name of a step's template. It defaults to the name of the step.
func formatTemplate(s *flowv1.Flow) string {
	if s.TemplateRef != nil {
		return cmp.Or(s.TemplateRef.Name, s.Name)
	}
	return s.Name
}
