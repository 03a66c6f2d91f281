package driver

import (
	"container/heap"
	"time"
)

// deadlines is a heap of the next deadline of each process that has one.
type deadlines []*deadline

// deadline is embedded in what it belongs to. Its zero value is not set.
type deadline struct {
	at    time.Time
	owner *watch
	place int // in the heap, counted from 1; 0: not in it
}

// set sets or moves a deadline.
func (h *deadlines) set(d *deadline, owner *watch, at time.Time) {
	d.at, d.owner = at, owner
	if d.place > 0 {
		heap.Fix(h, d.place-1)
		return
	}
	heap.Push(h, d)
}

// drop forgets a deadline; it need not be set.
func (h *deadlines) drop(d *deadline) {
	if d.place > 0 {
		heap.Remove(h, d.place-1)
	}
}

// due takes out a deadline that is over and returns its owner, or nil.
func (h *deadlines) due(now time.Time) *watch {
	if len(*h) == 0 || (*h)[0].at.After(now) {
		return nil
	}
	return heap.Pop(h).(*deadline).owner
}

// wait is the time to the first deadline in milliseconds, rounded up lest the
// loop spins through the last one, and -1 when there is none.
func (h *deadlines) wait(now time.Time) int {
	if len(*h) == 0 {
		return -1
	}
	left := min((*h)[0].at.Sub(now), time.Hour)
	return int((left + time.Millisecond - 1) / time.Millisecond)
}

// The methods of heap.Interface.

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push is for the heap package.
func (h *deadlines) Push(x any) {
	d := x.(*deadline)
	*h = append(*h, d)
	d.place = len(*h)
}

// Pop is for the heap package.
func (h *deadlines) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	d.place = 0
	return d
}
