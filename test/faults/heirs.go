package main

import (
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
	"k8s4r.io/k8s4r/internal/wire"
)

// heirs are agents that are started on what is left of a life.
type heirs struct {
	t      testing.TB
	life   *life
	broker string
	server *fakeserver.Server

	mu   sync.Mutex
	said map[string]map[string]end // by robot and the task's UID
	lost int
}

func newHeirs(t testing.TB, l *life) *heirs {
	h := &heirs{t: t, life: l, broker: fakeserver.Broker(t), said: map[string]map[string]end{}}
	h.server = fakeserver.Start(t, h.broker, h.heard)
	return h
}

// heard goes by who sent it: what is in a journal bears the name of the dead.
func (h *heirs) heard(robot string, s wire.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.Terminal() && h.said[robot] != nil {
		h.said[robot][s.TaskUID] = endOf(s)
	}
}

// inheritance is what an agent finds, and what the server says.
type inheritance struct {
	what    string // for people
	journal []byte
	states  map[string][]byte // of the shims, by the task's UID
	started bool              // the server knows that they ran
	// likeness names the task of the life that one of these UIDs was. Nil: itself.
	likeness func(uid string) string
}

// take starts an agent on an inheritance, asks it for each task, and holds its
// answers against the truth.
func (h *heirs) take(r *realrobot.Robot, in inheritance) {
	os.RemoveAll(r.Dir)
	mustWrite(h.t, filepath.Join(r.Dir, "journal"), in.journal)
	for uid, state := range in.states {
		mustWrite(h.t, filepath.Join(r.Shim(uid), "state"), state)
	}
	h.forget(r.ID)
	before := h.server.Registered(r.ID)
	r.Start()
	defer r.Kill()
	for until := time.Now().Add(patience); h.server.Registered(r.ID) == before; time.Sleep(time.Millisecond) {
		if r.Ended() || time.Now().After(until) {
			h.wrong(len(in.states), "%s: the agent does not start", in.what)
			return
		}
	}
	h.ask(r, in)
	h.judge(r, in)
}

func (h *heirs) forget(robot string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said[robot] = map[string]end{}
}

// ask says every task until each is answered.
func (h *heirs) ask(r *realrobot.Robot, in inheritance) {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		for uid := range in.states {
			if !h.answered(r.ID, uid) {
				task := h.life.asker.asked[in.was(uid)].task
				task.Metadata.UID = uid
				h.server.Dispatch(r.ID, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1, Started: in.started})
			}
		}
		for again := time.Now().Add(sayAgain); time.Now().Before(again); time.Sleep(time.Millisecond) {
			if h.answers(r.ID) == len(in.states) {
				return
			}
		}
	}
}

func (h *heirs) answered(robot, uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.said[robot][uid]
	return ok
}

func (h *heirs) answers(robot string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.said[robot])
}

// was is the task of the life that a UID stands for.
func (in inheritance) was(uid string) string {
	if in.likeness == nil {
		return uid
	}
	return in.likeness(uid)
}

// unknown is the answer of an agent that cannot know how an attempt ended.
var unknown = end{wire.ReportFailed, wire.ReasonAgentRestarted, -1}

func (h *heirs) judge(r *realrobot.Robot, in inheritance) {
	h.mu.Lock()
	said := maps.Clone(h.said[r.ID]) // a late repetition may still be heard
	h.mu.Unlock()
	for uid := range in.states {
		truth := h.life.asker.asked[in.was(uid)].plan.end
		if got, ok := said[uid]; !ok || got != truth && got != unknown {
			h.wrong(1, "%s: %s ended as %+v, by the agent as %+v (%v)", in.what, uid, truth, got, ok)
		}
	}
}

func (h *heirs) wrong(n int, format string, args ...any) {
	h.t.Errorf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost += n
}

// check counts what ran again: the tasks have written each of their starts.
func (h *heirs) check(also map[string]any) figures {
	f := figures{Tasks: len(h.life.asker.asked), Lost: h.lost, Also: also}
	starts, _ := h.life.asker.trace.Runs(h.t)
	for run, n := range starts {
		if n != 1 || h.life.asker.asked[run.UID] == nil {
			f.Doubled++
			h.t.Errorf("attempt %d of %s started %d times", run.Number, run.UID, n)
		}
	}
	return f
}
