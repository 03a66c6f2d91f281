package hostnode

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// The shim sends more updates while a subscriber is added that missed the first ones.
func TestSubscribeShim_DeliversUpdatesInOrder(t *testing.T) {
	const early, all = 20, 40
	for range 5000 {
		n := &Node{subscribers: map[*supervisor.Shim]func(supervisor.Update){}, pendingUpdates: map[*supervisor.Shim][]supervisor.Update{}}
		s := &supervisor.Shim{}
		deliver := func(i int) {
			n.deliverUpdate(supervisor.Update{Shim: s, State: shim.State{Exit: &shim.Exit{Code: i}}, ShimExited: i == all-1})
		}
		for i := range early {
			deliver(i)
		}
		var mu sync.Mutex
		var received []int
		var rest sync.WaitGroup
		begins := make(chan struct{})
		rest.Go(func() {
			<-begins
			for i := early; i < all; i++ {
				deliver(i)
			}
		})
		n.subscribeShim(s, func(update supervisor.Update) {
			if update.Exit.Code == 0 {
				close(begins)
			}
			runtime.Gosched() // lets the goroutine of the shim continue
			mu.Lock()
			defer mu.Unlock()
			received = append(received, update.Exit.Code)
		})
		rest.Wait()
		if !slices.IsSorted(received) || len(received) != all || len(n.subscribers)+len(n.pendingUpdates) != 0 {
			t.Fatalf("received %v; %d subscribers and %d pending updates are left", received, len(n.subscribers), len(n.pendingUpdates))
		}
	}
}
