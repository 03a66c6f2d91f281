package gateway

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// secretRequestPause is at least between two answers to requests for the secrets of one task.
const secretRequestPause = time.Second

// secretRequest is the request of an agent for the secrets of an attempt that it has already. An agent
// before had them. The zero value: there is none.
type secretRequest struct {
	uid     types.UID
	attempt int32
	robot   string
}

// isOpen reports whether the Task still has the attempt for which the agent asked, on that robot.
func (r secretRequest) isOpen(t *robotv1.Task) bool {
	return r.attempt > 0 && isListed(t) && usesSecrets(t) && t.Status.Attempt == r.attempt && t.CurrentRobot() == r.robot
}

// secretRequests are the requests that are not answered: at most one for each Task.
type secretRequests struct {
	mu  sync.Mutex
	all map[types.UID]secretRequest
}

func (s *secretRequests) put(r secretRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[types.UID]secretRequest{}
	}
	s.all[r.uid] = r
}

func (s *secretRequests) get(uid types.UID) secretRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[uid]
}

// drop removes a request, unless there is a newer one of the same task.
func (s *secretRequests) drop(r secretRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[r.uid] == r {
		delete(s.all, r.uid)
	}
}

// requestSecrets notes that an agent asks for the secrets of an attempt. It asks again if there is no
// answer.
func (g *Gateway) requestSecrets(r report) {
	request := secretRequest{r.uid, r.attempt, r.robot}
	if !r.NeedsSecrets || r.legacy || !request.isOpen(g.objects.task(r.uid)) {
		return
	}
	g.secretRequests.put(request)
	g.secretQueue.AddAfter(r.uid, secretRequestPause)
}

// sendRequestedSecrets sends the values of secretEnv to the agent that has asked for them, unless the
// attempt is over.
func (d *downlink) sendRequestedSecrets(r secretRequest, values wire.Secrets) {
	if t := d.objects.task(r.uid); r.isOpen(t) {
		d.sendTaskWith(t, wire.ActionCreate, values)
	}
}
