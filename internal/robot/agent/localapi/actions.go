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
	t, found := s.findRequestedTask(w, r)
	if !found {
		return
	}
	s.operate(w, r, t.FullName()+": ", runner.LocalRequest{Action: action, UID: t.UID})
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

// checkReason returns an error if the reason of a maintenance is missing, too long or not a line of text.
func checkReason(q runner.LocalRequest) error {
	switch {
	case q.Action == runner.LocalMaintenanceOff:
		return nil
	case q.Reason == "":
		return fmt.Errorf("a reason is required: --reason")
	case len(q.Reason) > wire.MaxMaintenanceReason:
		return fmt.Errorf("the reason is longer than %d bytes", wire.MaxMaintenanceReason)
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
