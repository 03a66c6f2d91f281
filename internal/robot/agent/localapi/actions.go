package localapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// serveTaskAction stops or restarts a task.
func (s *Server) serveTaskAction(w http.ResponseWriter, r *http.Request, action runner.LocalAction) {
	s.serveTaskRequest(w, r, runner.LocalRequest{Action: action})
}

// serveMaintenance begins or ends the maintenance of the robot.
func (s *Server) serveMaintenance(w http.ResponseWriter, r *http.Request) {
	q := runner.LocalRequest{Action: runner.LocalMaintenanceOff, Reason: strings.TrimSpace(r.FormValue("reason"))}
	if r.FormValue("on") == "true" {
		q.Action = runner.LocalMaintenanceOn
	}
	if err := checkReason(q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.operate(w, r, "", q)
}

// serveHold keeps a task from being interrupted, or all tasks of the robot if the request names none.
func (s *Server) serveHold(w http.ResponseWriter, r *http.Request) {
	q := runner.LocalRequest{Action: runner.LocalHold, Reason: strings.TrimSpace(r.FormValue("reason"))}
	if err := checkReason(q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.FormValue("task") == "" {
		s.operate(w, r, "", q)
		return
	}
	s.serveTaskRequest(w, r, q)
}

// serveRelease ends the hold of a task, of the robot, or all holds. The names of held tasks are those of tasks
// on the robot: a hold ends with its task.
func (s *Server) serveRelease(w http.ResponseWriter, r *http.Request) {
	isAll, task := r.FormValue("all") == "true", r.FormValue("task")
	switch {
	case isAll && task != "":
		http.Error(w, "name a task, or use --all", http.StatusBadRequest)
	case isAll:
		s.operate(w, r, "", runner.LocalRequest{Action: runner.LocalReleaseAll})
	case task == "":
		s.operate(w, r, "", runner.LocalRequest{Action: runner.LocalRelease})
	default:
		s.serveTaskRequest(w, r, runner.LocalRequest{Action: runner.LocalRelease})
	}
}

// serveTaskRequest lets the runner carry out a request about the task that the client names.
func (s *Server) serveTaskRequest(w http.ResponseWriter, r *http.Request, q runner.LocalRequest) {
	t, found := s.findRequestedTask(w, r)
	if !found {
		return
	}
	q.UID = t.UID
	s.operate(w, r, t.FullName()+": ", q)
}

// checkReason returns an error if the reason of a maintenance or a hold is missing, too long or not a line of
// text.
func checkReason(q runner.LocalRequest) error {
	limit := wire.MaxMaintenanceReason
	if q.Action == runner.LocalHold {
		limit = wire.MaxHoldReason
	}
	switch {
	case q.Action == runner.LocalMaintenanceOff:
		return nil
	case q.Reason == "":
		return fmt.Errorf("a reason is required: --reason")
	case len(q.Reason) > limit:
		return fmt.Errorf("the reason is longer than %d bytes", limit)
	case strings.ContainsFunc(q.Reason, unicode.IsControl):
		return fmt.Errorf("the reason must be one line of text")
	}
	return nil
}

// operate lets the runner carry out a request in the name of the peer. Prefix is what the answer is about.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, prefix string, q runner.LocalRequest) {
	peer, _ := r.Context().Value(peerKey{}).(Peer)
	q.By = peer.String()
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	message, err := s.Tasks.Operate(ctx, q)
	if err != nil {
		http.Error(w, prefix+err.Error(), http.StatusConflict)
		return
	}
	fmt.Fprintln(w, prefix+message)
}
