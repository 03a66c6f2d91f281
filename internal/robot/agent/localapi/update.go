package localapi

import (
	"fmt"
	"net/http"
	"os"
	"strconv"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/selfupdate"
)

// serveUpdate updates the agent. It answers when the version is fetched and verified, and the agent is about to
// switch to it. The members of the group may not: the agent reads the file for them, which may be any of root's.
func (s *Server) serveUpdate(w http.ResponseWriter, r *http.Request) {
	peer, _ := r.Context().Value(peerKey{}).(Peer)
	if !isAgentsUser(peer) {
		http.Error(w, fmt.Sprintf("%s may not update the agent: run this as root or as the agent's user", peer), http.StatusForbidden)
		return
	}
	m, err := agentupdate.Parse([]byte(r.FormValue("manifest")))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switchOver, err := s.Updates.Request(r.Context(), selfupdate.Request{Manifest: m, Source: r.FormValue("from"), By: peer.String()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	// With its length the answer is complete although the agent ends.
	answer := fmt.Sprintf("the agent switches to version %s\n", m.Version)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	extendDeadline(w)
	_, _ = fmt.Fprint(w, answer)
	_ = http.NewResponseController(w).Flush()
	switchOver()
}

// isAgentsUser reports whether a peer is root or the agent's own user.
func isAgentsUser(p Peer) bool { return p.UID == 0 || int(p.UID) == os.Geteuid() }
