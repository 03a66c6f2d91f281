package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// reconnectTime is how long robots may take to connect after a restore. It exceeds the longest
	// pause between two attempts of an agent to connect.
	reconnectTime = time.Minute
	// journalTimeout is how long a connected robot may take to publish its journal.
	journalTimeout = 2 * time.Minute
	// journalRetry is the time between two requests for a journal.
	journalRetry = 5 * time.Second
	// maxNamedTasks bounds the tasks that an event names.
	maxNamedTasks = 10
)

// The reasons of events about robots after a restore.
const (
	// ReasonUnknownTasks: the robot ran tasks that the restored backup does not have.
	ReasonUnknownTasks = "UnknownTasks"
	// ReasonJournalMissing: the robot is connected and has not published its journal in time.
	ReasonJournalMissing = "JournalMissing"
)

// restoration reads the journals of the robots after a restore. While the gate is closed no dispatch
// is sent, and task lists stop nothing on a robot until its journal is read.
type restoration struct {
	gate    *restore.Gate
	request uint64 // 0: the gate was open at the start, so no journal is read
	queue   workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	upSince time.Time // zero: the server was not connected to the broker yet
	robots  map[string]*robotJournal
	known   map[types.UID]int32 // the highest attempt in the backup of Tasks that had later ones
	adopted int
	unknown int
}

// robotJournal is what is known of one robot's journal.
type robotJournal struct {
	firstSeen time.Time // zero: the robot has not connected yet
	askedAt   time.Time
	pages     map[int]wire.Journal // received, and not read yet
	read      map[int]bool
	total     int // pages; 0: unknown
	readAt    time.Time
	unknown   []string // running tasks that have no object
	isDone    bool
}

func newRestoration(g *restore.Gate, now time.Time) *restoration {
	r := &restoration{gate: g, queue: newQueue[string](), robots: map[string]*robotJournal{}, known: map[types.UID]int32{}}
	if !g.IsOpen() {
		// Answers to a server before this one do not count.
		r.request = uint64(now.UnixMilli())
	}
	return r
}

// requestFor returns the number with which a robot's task list asks for its journal, or 0.
func (r *restoration) requestFor(robotID string) uint64 {
	if r.request == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.robots[robotID]; j != nil && j.isDone {
		return 0
	}
	return r.request
}

// mustQuery reports whether task lists ask for the state of every attempt that has started: the robot
// may have reported its end to the server before the restore.
func (r *restoration) mustQuery() bool { return !r.gate.IsOpen() }

// missingAttempts returns the numbers of the Task's attempts that the backup does not have.
func (r *restoration) missingAttempts(t *robotv1.Task) attemptRange {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[t.UID]
	if !ok {
		known = highestAttempt(&t.Status)
	}
	return attemptRange{known: known, first: r.gate.FirstAttempt()}
}

// journalLocked returns the state of a robot.
func (r *restoration) journalLocked(robotID string) *robotJournal {
	j := r.robots[robotID]
	if j == nil {
		j = &robotJournal{pages: map[int]wire.Journal{}, read: map[int]bool{}}
		r.robots[robotID] = j
	}
	return j
}

// addPage stores a page until it is read. Pages that were read are ignored.
func (r *restoration) addPage(robotID string, page wire.Journal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.journalLocked(robotID)
	if r.request == 0 || page.Request != r.request || j.isDone {
		return
	}
	if !j.isPartOf(page) { // of another agent, which was started since
		j.total, j.readAt, j.pages, j.read = page.Pages, page.ReadAt, map[int]wire.Journal{}, map[int]bool{}
	}
	if !j.read[page.Page] {
		j.pages[page.Page] = page
		r.queue.Add(robotID)
	}
}

// isPartOf reports whether a page belongs to the pages that have arrived.
func (j *robotJournal) isPartOf(page wire.Journal) bool {
	return j.total == page.Pages && j.readAt.Equal(page.ReadAt)
}

// nextPage returns a page to read.
func (r *restoration) nextPage(robotID string) (wire.Journal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.journalLocked(robotID).pages {
		return p, true
	}
	return wire.Journal{}, false
}

// finishPage records that a page was read, and reports whether it was the last one.
func (r *restoration) finishPage(robotID string, page wire.Journal) (isLast bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.journalLocked(robotID)
	if !j.isPartOf(page) || j.isDone {
		return false
	}
	delete(j.pages, page.Page)
	j.read[page.Page] = true
	j.isDone = len(j.read) == j.total
	return j.isDone
}

// recordAdopted records that the Task got an attempt beyond known.
func (r *restoration) recordAdopted(uid types.UID, known int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[uid] = known
	r.adopted++
}

// recordUnknown records a running task that has no object.
func (r *restoration) recordUnknown(robotID, task string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.journalLocked(robotID); !slices.Contains(j.unknown, task) {
		j.unknown = append(j.unknown, task)
		r.unknown++
	}
}

// unknownTasks returns the running tasks of a robot that have no object.
func (r *restoration) unknownTasks(robotID string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.journalLocked(robotID).unknown)
}

// waitOutcome is whether the gate waits for a robot.
type waitOutcome int

const (
	waits   waitOutcome = iota
	isDone              // its journal was read
	isAway              // it is out of contact
	isTardy             // it is connected, and has not published its journal in time
)

// checkRobot decides whether the gate waits for a robot, and whether it has to be asked now.
func (r *restoration) checkRobot(now time.Time, robotID string, isConnected bool) (o waitOutcome, mustAsk bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.journalLocked(robotID)
	if isConnected && j.firstSeen.IsZero() {
		j.firstSeen = now
	}
	isComplete := j.total > 0 && len(j.pages)+len(j.read) == j.total
	isInTime := !j.firstSeen.IsZero() && now.Sub(j.firstSeen) < journalTimeout && j.firstSeen.Sub(r.upSince) < reconnectTime+journalTimeout
	switch {
	case j.isDone:
		return isDone, false
	case isComplete:
		return waits, false // its pages are being read
	case isConnected && isInTime:
		if mustAsk = now.Sub(j.askedAt) >= journalRetry; mustAsk {
			j.askedAt = now
		}
		return waits, mustAsk
	case isConnected:
		return isTardy, false
	case now.Sub(r.upSince) < reconnectTime:
		return waits, false
	}
	return isAway, false
}

// markUp records that the server is connected to the broker.
func (r *restoration) markUp(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.upSince.IsZero() {
		r.upSince = now
	}
}

// summary returns what was found.
func (r *restoration) summary(missing []string) restore.Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := restore.Summary{Adopted: r.adopted, Unknown: r.unknown, Missing: missing}
	for _, j := range r.robots {
		if j.isDone {
			s.Reported++
		}
	}
	return s
}

// sweepRestoration continues a restoration while the server is connected to the broker.
func (g *Gateway) sweepRestoration(now time.Time) {
	if g.restoration.request == 0 || g.mqtt.upConnection() == 0 {
		return
	}
	g.restoration.markUp(now)
	g.advanceRestoration(now)
}

// advanceRestoration asks connected robots for their journals, and opens the gate when no robot has to
// be waited for any more.
func (g *Gateway) advanceRestoration(now time.Time) {
	r := g.restoration
	var mustWait bool
	var missing []string
	for _, id := range g.objects.robotIDs() {
		if g.objects.isRevoked(id) || g.lastProtocol(id) == robotv1.ProtocolV1 {
			continue
		}
		outcome, mustAsk := r.checkRobot(now, id, g.isConnected(id))
		if mustAsk {
			g.taskLists.resendList(id)
		}
		mustWait = mustWait || outcome == waits
		if outcome == isTardy || outcome == isAway {
			missing = append(missing, id)
		}
	}
	if !mustWait && !r.gate.IsOpen() {
		g.openGate(missing)
	}
}

// isConnected reports whether the robot has sent a message to this server, and no last will since.
func (g *Gateway) isConnected(robotID string) bool {
	w := g.robots.stateOf(robotID)
	return !w.lastSeen.IsZero() && w.disconnectReason == ""
}

// openGate lets tasks be placed, and sends the dispatches that were held.
func (g *Gateway) openGate(missing []string) {
	slices.Sort(missing)
	if err := g.restoration.gate.Open(g.restoration.summary(missing)); err != nil {
		g.logRetry(err)
		return
	}
	for _, id := range missing {
		if r := g.objects.robot(id); r != nil && g.isConnected(id) {
			g.warn(r, ReasonJournalMissing, "The robot is connected but has not reported which tasks it ran since the restored backup, so they may run again; upgrade or restart its agent")
		}
	}
	g.downlink.resendAll()
	for _, id := range g.objects.robotIDs() {
		g.attributes.resendTasks(id)
	}
}

// handleJournal stores a page of a robot's journal.
func (g *Gateway) handleJournal(robotID string, page wire.Journal) error {
	if err := page.Validate(); err != nil {
		return err
	}
	if g.objects.robot(robotID) == nil {
		return nil
	}
	g.robots.updateState(robotID, true, func(w *robotState) { w.recordContact(g.now()) })
	g.restoration.addPage(robotID, page)
	return nil
}

// readJournals reads journals until ctx ends. A journal may take longer than the timeout of one write.
func (g *Gateway) readJournals(ctx context.Context) {
	q := g.restoration.queue
	for {
		robotID, shutdown := q.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		if err := g.readJournal(ctx, robotID); err != nil {
			g.logRetry(err)
			q.AddRateLimited(robotID)
		} else {
			q.Forget(robotID)
		}
		q.Done(robotID)
	}
}

// readJournal adds the attempts of a robot's journal to the Tasks. After the last page the robot gets its
// complete task list.
func (g *Gateway) readJournal(ctx context.Context, robotID string) error {
	for {
		page, ok := g.restoration.nextPage(robotID)
		if !ok {
			return nil
		}
		for _, e := range page.Entries {
			if err := g.readEntry(ctx, robotID, e); err != nil {
				return err
			}
		}
		if g.restoration.finishPage(robotID, page) {
			g.finishJournal(robotID)
		}
	}
}

func (g *Gateway) finishJournal(robotID string) {
	g.taskLists.resendList(robotID)
	unknown := g.restoration.unknownTasks(robotID)
	if r := g.objects.robot(robotID); r != nil && len(unknown) > 0 {
		named := unknown[:min(len(unknown), maxNamedTasks)]
		g.warn(r, ReasonUnknownTasks, fmt.Sprintf("The robot runs %d tasks that the restored backup does not have, and stops them: %s", len(unknown), strings.Join(named, ", ")))
	}
}

// readEntry adds an attempt to its Task, if the Task exists and does not have it.
func (g *Gateway) readEntry(ctx context.Context, robotID string, e wire.JournalEntry) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	g.restoration.gate.RaiseAbove(e.Attempt)
	t, r := g.objects.task(types.UID(e.UID)), g.objects.robot(robotID)
	if t == nil && e.State == wire.ReportRunning {
		g.restoration.recordUnknown(robotID, e.Task+" ("+e.UID+")")
	}
	for t != nil && r != nil {
		missing := g.restoration.missingAttempts(t)
		status := adoptAttempt(t, journaledAttempt{r, e}, missing)
		if status == nil {
			return nil
		}
		err := g.writeAdopted(ctx, t, status)
		switch {
		case err == nil:
			g.restoration.recordAdopted(t.UID, missing.known)
			return nil
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			g.log.Error(err, "the API server refused an attempt from a journal", "robot", robotID, "uid", e.UID, "attempt", e.Attempt)
			return nil // it would be refused again, and tasks would never be placed
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return fmt.Errorf("add attempt %d of robot %s to task %s/%s: %w", e.Attempt, robotID, t.Namespace, t.Name, err)
		}
		if t, err = g.reports.rereadTask(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gateway) writeAdopted(ctx context.Context, t *robotv1.Task, status *robotv1.TaskStatus) error {
	next := t.DeepCopy()
	next.Status = *status
	err := g.client.Status().Update(ctx, next)
	g.m.taskWrites.WithLabelValues(resultLabel(err)).Inc()
	if err == nil {
		g.storeTask(next)
	}
	return err
}
