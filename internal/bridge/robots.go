package bridge

import (
	"sync"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/wire"
)

// word is the last that one robot said of itself. It lives in memory only: a
// server that has forgotten it hears it again with the next heartbeat.
type word struct {
	protocol string // empty: nothing heard since this server started
	// plaintext: the network is believed for all that comes from it.
	plaintext bool
	version   string
	address   string
	device    *wire.DeviceInfo
	labels    map[string]string
	token     string // that it registered with, if it has nothing else to show
	// heard is when anything but a last will came from the robot.
	heard time.Time
	// beats is the number of its last heartbeat. Zero: none, or it wants no ack.
	beats uint64
	// registered is when it last registered, here.
	registered time.Time
	// waits for the answer to its registration.
	waits bool
	// gone is why it is out of contact, as the reason of its condition
	// Connected. Empty: it is in contact.
	gone string
	// doubtful is when a last will came that may be that of an older
	// connection. Zero: none.
	doubtful time.Time
	// deaf: it lives, and answers no dispatch.
	deaf bool
	// answered: it said something of a task since this server started.
	answered bool
}

const (
	// staleWill is how long after a registration a last will may still be that
	// of the connection before: a broker sends it when the same client connects
	// again, and nothing in MQTT orders it before the registration.
	staleWill = 5 * time.Second
	// willProof is how long a robot whose last will is doubtful may stay
	// silent. It is more than the time between two heartbeats.
	willProof = 40 * time.Second
	// maxStrangers bounds the robots that are remembered without an object.
	maxStrangers = 4096
)

// robots is the memory of all robots' last words. It holds only robots that
// have an object, and strangers whose registration is under way.
type robots struct {
	plaintext bool // all of them are heard that way

	mu        sync.Mutex
	words     map[string]*word
	strangers int
}

func newRobots(plaintext bool) *robots {
	return &robots{plaintext: plaintext, words: map[string]*word{}}
}

// get returns a copy of the robot's last word; the zero word when there is
// none.
func (r *robots) get(id string) word {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.words[id]; w != nil {
		return *w
	}
	return word{}
}

// change applies a change to the word of a robot, which is made if need be. It
// refuses, and returns false, when too many strangers are remembered. Known
// tells whether the robot has an object.
func (r *robots) change(id string, known bool, to func(*word)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.words[id]
	if w == nil {
		if !known && r.strangers >= maxStrangers {
			return false
		}
		if !known {
			r.strangers++
		}
		w = &word{plaintext: r.plaintext}
		r.words[id] = w
	}
	to(w)
	return true
}

// settle forgets who is no robot any more, and counts the strangers anew.
func (r *robots) settle(known func(id string) bool, now time.Time, keep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strangers = 0
	for id, w := range r.words {
		switch {
		case known(id):
		case now.Sub(w.heard) > keep:
			delete(r.words, id)
		default:
			r.strangers++
		}
	}
}

// hear notes a sign of life.
func (w *word) hear(now time.Time) {
	w.heard, w.gone, w.doubtful = now, "", time.Time{}
}

// lastHeard is heard, as exactly as an object can say it: compared with more
// digits what is written would be old again as soon as it is read.
func (w *word) lastHeard() time.Time { return w.heard.UTC().Truncate(time.Microsecond) }

// register takes in a registration.
func (w *word) register(now time.Time, protocol string, r wire.Register) {
	w.hear(now)
	w.registered, w.waits = now, true
	w.protocol, w.version, w.address, w.labels = protocol, cut(r.AgentVersion), cut(r.Address), r.Labels
	if protocol == robotv1.ProtocolDocument {
		w.token = cut(r.Token)
	}
	if r.DeviceInfo != nil {
		w.device = r.DeviceInfo
	}
}

// beat takes in a heartbeat.
func (w *word) beat(now time.Time, protocol string, h wire.Heartbeat) {
	w.hear(now)
	w.beats = h.N
	if w.protocol == "" {
		w.protocol = protocol
	}
	if h.DeviceInfo != nil {
		w.device = h.DeviceInfo
	}
}

// part takes in a goodbye or a last will.
func (w *word) part(now time.Time, p wire.Presence) {
	switch {
	case p.Online:
		w.hear(now)
	case p.Graceful:
		w.gone, w.doubtful = robotv1.ReasonSignedOff, time.Time{}
	case w.gone == "" && now.Sub(w.registered) < staleWill:
		w.doubtful = now
	case w.gone == "":
		w.gone = robotv1.ReasonLastWill
	}
}

// prove decides on a doubtful last will once the robot has been silent for
// long enough. It tells whether the robot is now held to be gone.
func (w *word) prove(now time.Time) bool {
	if w.doubtful.IsZero() || now.Sub(w.doubtful) < willProof {
		return false
	}
	w.gone, w.doubtful = robotv1.ReasonLastWill, time.Time{}
	return true
}

// fallSilent takes in that nothing came from the robot since then. It tells
// whether the robot is now held to be gone: one that dies without a last will,
// as a document agent does, would be connected for ever.
func (w *word) fallSilent(now, since time.Time, offlineAfter time.Duration) bool {
	if w.gone != "" || now.Sub(latest(w.heard, since)) < offlineAfter {
		return false
	}
	w.gone, w.doubtful = robotv1.ReasonSilent, time.Time{}
	return true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dialect is what the robot speaks: what was heard last, else what is written
// down. Empty: it has never spoken.
func dialect(w word, r *robotv1.Robot) string {
	if w.protocol != "" || r == nil || r.Status.Agent == nil {
		return w.protocol
	}
	return r.Status.Agent.Protocol
}
