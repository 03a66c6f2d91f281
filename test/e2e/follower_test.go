package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"k8s4r.io/k8s4r/internal/testkit"
)

// follower keeps the state of all tasks by the console's events, as docs/reference/events.md describes,
// also across restarts of the console. It fails the test if an event does not follow from the events
// before.
type follower struct {
	*testing.T
	name       string
	url, token string
	// hold blocks until the next event may be read; false: stop reading. If nil, it is read at once.
	hold func(context.Context) (stays bool)
	gone chan struct{} // closed when it has stopped following

	mu     sync.Mutex
	id     string            // of the last event
	tasks  map[string][]step // what it knows, by UID
	events int               // number of events, without repeated ones
	lists  int               // number of resyncs after which it loaded its lists
	free   bool              // it is not held any more
}

// step is what a follower knows of a task from one moment on.
type step struct {
	seq            uint64
	what, from, to string
}

const (
	inList  = "in a list"     // what: a list contained it
	missing = "not in a list" // what: a list did not contain it any more
	never   = math.MaxInt
)

func (c *restartable) follower(name string) *follower {
	return &follower{T: c.s.t, name: name, url: c.url, token: c.token, tasks: map[string][]step{}}
}

// lagBehind makes the follower pause until lead has received n more events, and then catch up with it.
func (f *follower) lagBehind(lead *follower, n int) {
	due := 0
	f.hold = func(ctx context.Context) bool {
		if f.count() < due {
			return true
		}
		was := lead.count()
		err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
			return lead.count() >= was+n || f.isFree(), nil
		})
		due = max(lead.count(), f.count()+n)
		return err == nil
	}
}

// hurry ends all pauses of the follower.
func (f *follower) hurry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = true
}

func (f *follower) isFree() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.free
}

// leaveAfter makes the follower disconnect after n events.
func (f *follower) leaveAfter(n int) {
	f.hold = func(context.Context) bool { return f.count() < n }
}

// come follows events from the last position, and reconnects after each disconnect, until the
// follower leaves or the test ends. It returns after the first hello.
func (f *follower) come() {
	f.Helper()
	ctx, leave := context.WithCancel(f.Context())
	gone := make(chan struct{})
	f.gone = gone
	go func() {
		defer close(gone)
		wait.UntilWithContext(ctx, func(ctx context.Context) { f.follow(ctx, leave) }, 20*time.Millisecond)
	}()
	f.Cleanup(func() { leave(); <-gone })
	testkit.Eventually(f, time.Minute, f.name+" has received hello", func() bool { return f.position() != "" })
}

// follow reads one stream to its end.
func (f *follower) follow(ctx context.Context, leave func()) {
	answer, err := f.ask(ctx, "/events?kind=tasks", "Last-Event-ID", f.position())
	if err != nil {
		return // the console is stopped, or not ready yet
	}
	defer answer.Body.Close()
	readEvents(f.T, answer.Body, func(e consoleEvent) bool {
		if f.hold != nil && e.event == "change" && !f.hold(ctx) {
			leave()
			return false
		}
		return f.take(ctx, e) == nil
	})
}

func (f *follower) ask(ctx context.Context, path string, header ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	if len(header) == 2 && header[1] != "" {
		r.Header.Set(header[0], header[1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err == nil && answer.StatusCode != http.StatusOK {
		if answer.StatusCode != http.StatusServiceUnavailable {
			f.Errorf("%s: %s: %s", f.name, path, answer.Status)
		}
		answer.Body.Close()
		err = errors.New(answer.Status)
	}
	return answer, err
}

// take advances the position to an event after it has handled the event: if it is disconnected
// before, it receives the event again.
func (f *follower) take(ctx context.Context, e consoleEvent) error {
	switch e.event {
	case "resync":
		if err := f.load(ctx); err != nil {
			return err
		}
	case "change":
		if e.data.Refresh {
			if err := f.gather(ctx, e); err != nil {
				return err
			}
			break
		}
		f.learn(e)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id = e.id
	return nil
}

// load adds the lists to what it knows.
func (f *follower) load(ctx context.Context) error {
	listed, err := f.list(ctx, "")
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, is := range listed {
		if known := f.tasks[uid]; len(known) == 0 || known[len(known)-1].seq < is.seq {
			f.tasks[uid] = append(known, is)
		}
	}
	for uid, known := range f.tasks {
		last := known[len(known)-1]
		if _, ok := listed[uid]; !ok && last.what != "removed" && last.what != missing {
			f.tasks[uid] = append(known, step{last.seq, missing, last.to, last.to})
		}
	}
	f.lists++
	return nil
}

// gather loads the tasks of a job that one event reports.
func (f *follower) gather(ctx context.Context, e consoleEvent) error {
	listed, err := f.list(ctx, "&job="+e.data.Job+"&changedAfter="+e.data.After)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, is := range listed {
		if known := f.tasks[uid]; len(known) == 0 || known[len(known)-1].seq < is.seq {
			f.tasks[uid] = append(known, is)
		}
	}
	f.events++
	return nil
}

// list returns the tasks that a query selects, by UID.
func (f *follower) list(ctx context.Context, query string) (map[string]step, error) {
	tasks := map[string]step{}
	var page struct {
		Items    []struct{ UID, State, ResourceVersion string }
		Continue string
	}
	for first := true; first || page.Continue != ""; first = false {
		answer, err := f.ask(ctx, "/objects/tasks?limit=10&continue="+url.QueryEscape(page.Continue)+query)
		if err != nil {
			return nil, err
		}
		page.Items, page.Continue = nil, ""
		err = json.NewDecoder(answer.Body).Decode(&page)
		answer.Body.Close()
		if err != nil {
			return nil, err
		}
		for _, i := range page.Items {
			tasks[i.UID] = step{number(i.ResourceVersion), inList, "", i.State}
		}
	}
	return tasks, nil
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64) // zero is before everything
	return n
}

func (f *follower) learn(e consoleEvent) {
	now := step{number(e.data.Seq), e.data.Type, e.data.From, e.data.To}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.tasks[e.data.UID]
	if len(known) > 0 && now.seq <= known[len(known)-1].seq {
		listed := step{now.seq, inList, "", now.to} // a list may have it before its event
		if known[0].seq < now.seq && !slices.Contains(known, now) && !slices.Contains(known, listed) && !listedSince(known, now.seq) {
			f.Errorf("%s received an old event of %s that it did not know: %v, it knows %v", f.name, e.data.Name, now, known)
		}
		return
	}
	if !f.follows(known, now) || e.data.Filled {
		f.Errorf("%s received an event of %s that does not follow: %v (filled: %v), it knows %v", f.name, e.data.Name, now, e.data.Filled, known)
	}
	f.tasks[e.data.UID] = append(known, now)
	f.events++
}

// follows reports whether an event comes right after the known ones. A reader that has loaded lists
// may get events of objects that were deleted before.
func (f *follower) follows(known []step, now step) bool {
	if len(known) == 0 {
		return now.what == "added" && now.from == "" || f.lists > 0
	}
	last := known[len(known)-1]
	return now.what != "added" && last.what != "removed" && (now.from == last.to || last.what == missing)
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events
}

// loads returns how often it loaded its lists after a resync.
func (f *follower) loads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

func (f *follower) position() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// awaitTold waits until it has received n events in all.
func (f *follower) awaitTold(n int) {
	f.Helper()
	testkit.EventuallyNoError(f, time.Minute, fmt.Sprintf("%s receives %d events", f.name, n), func() error {
		if got := f.count(); got < n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}

// awaitLoads waits until it has loaded its lists n times.
func (f *follower) awaitLoads(n int) {
	f.Helper()
	testkit.Eventually(f, time.Minute, fmt.Sprintf("%s loads its lists %d times", f.name, n), func() bool { return f.loads() >= n })
}

// awaitPicture waits until it knows exactly these tasks, by UID, in these states.
func (f *follower) awaitPicture(want map[string]string) {
	f.Helper()
	testkit.EventuallyNoError(f, 30*time.Second, f.name+" knows all tasks", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		wrong, unknown := map[string][]step{}, maps.Clone(want)
		for uid, known := range f.tasks {
			last := known[len(known)-1]
			removed := last.what == "removed" || last.what == missing
			if state, ok := want[uid]; removed && ok || !removed && last.to != state {
				wrong[uid] = known
			}
			delete(unknown, uid)
		}
		if len(wrong)+len(unknown) > 0 {
			return fmt.Errorf("it does not know %v and knows wrongly %v", unknown, wrong)
		}
		return nil
	})
}

// agreesWith fails the test unless it knows the tasks of the archive and no others, each with the
// states of the archive. Brief tasks may be unknown, and states before a list as well.
func (f *follower) agreesWith(all []archivedTask) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	more := maps.Clone(f.tasks)
	for _, o := range all {
		delete(more, o.UID)
		known := f.tasks[o.UID]
		if len(known) == 0 && isBrief(o.Name) && f.lists > 0 {
			continue
		}
		for _, change := range o.transitions {
			if got := stateAt(known, uint64(change.Version)); got != change.To && !listedSince(known, uint64(change.Version)) {
				f.Errorf("the archive has %s of %d as %s, %s knows it as %q: %v", o.Name, change.Version, change.To, f.name, got, known)
			}
		}
		if got := stateAt(known, never); got != o.Phase && !listedSince(known, never) {
			f.Errorf("the archive has %s as %s, %s knows it as %q: %v", o.Name, o.Phase, f.name, got, known)
		}
	}
	if len(more) > 0 {
		f.Errorf("%s received events of tasks that the archive does not have: %v", f.name, more)
	}
}

// listedSince reports whether a list has replaced the event of a task at that version.
func listedSince(known []step, version uint64) bool {
	i := slices.IndexFunc(known, func(s step) bool { return s.seq > version })
	switch {
	case len(known) == 0:
		return false
	case i < 0:
		return known[len(known)-1].what == missing
	case i == 0:
		return known[0].what != "added"
	}
	return known[i].what == inList || known[i-1].what == missing
}

// stateAt returns the state after a write, or the last state of a removed task. It returns an empty
// string if it is not known.
func stateAt(known []step, version uint64) (state string) {
	for _, s := range known {
		switch {
		case s.seq > version:
		case s.what == "removed":
			state = s.from
		default:
			state = s.to
		}
	}
	return state
}
