package gateway

import (
	"container/heap"
	"sync"
	"time"
)

// robotChecks has the time at which each robot is checked next. A sweep of 20,000 robots examines
// only those that are due.
type robotChecks struct {
	mu   sync.Mutex
	next map[string]time.Time // by robot ID
	// heap has an element for each value in next, and for values that were replaced by earlier ones.
	heap checkHeap
}

// robotCheck is a scheduled check of a robot.
type robotCheck struct {
	id string
	at time.Time
}

func newRobotChecks() *robotChecks { return &robotChecks{next: map[string]time.Time{}} }

// schedule schedules a check of a robot, unless one is scheduled before.
func (c *robotChecks) schedule(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is, ok := c.next[id]; ok && !at.Before(is) {
		return
	}
	c.next[id] = at
	heap.Push(&c.heap, robotCheck{id, at})
}

// takeDue returns the robots whose check is due, and removes them from the schedule.
func (c *robotChecks) takeDue(now time.Time) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.heap) > 0 && !c.heap[0].at.After(now) {
		first := heap.Pop(&c.heap).(robotCheck)
		if is, ok := c.next[first.id]; ok && is.Equal(first.at) {
			delete(c.next, first.id)
			ids = append(ids, first.id)
		}
	}
	return ids
}

// checkHeap implements heap.Interface, the earliest check first.
type checkHeap []robotCheck

func (h checkHeap) Len() int           { return len(h) }
func (h checkHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h checkHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *checkHeap) Push(x any) { *h = append(*h, x.(robotCheck)) }

// Pop implements heap.Interface.
func (h *checkHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}
