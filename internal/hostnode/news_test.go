package hostnode

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// The shim sends more updates while a subscriber that missed the first ones is added.
func TestSubscribeShim_DeliversUpdatesInOrder(t *testing.T) {
	const early, all = 20, 40
	for range 5000 {
		n := &Node{listeners: map[*supervisor.Shim]func(supervisor.Update){}, unheard: map[*supervisor.Shim][]supervisor.Update{}}
		s := &supervisor.Shim{}
		say := func(i int) {
			n.deliverUpdate(supervisor.Update{Shim: s, State: shim.State{Exit: &shim.Exit{Code: i}}, ShimExited: i == all-1})
		}
		for i := range early {
			say(i)
		}
		var mu sync.Mutex
		var heard []int
		var rest sync.WaitGroup
		begins := make(chan struct{})
		rest.Go(func() {
			<-begins
			for i := early; i < all; i++ {
				say(i)
			}
		})
		n.subscribeShim(s, func(news supervisor.Update) {
			if news.Exit.Code == 0 {
				close(begins)
			}
			runtime.Gosched() // lets the shim continue if nothing else does
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, news.Exit.Code)
		})
		rest.Wait()
		if !slices.IsSorted(heard) || len(heard) != all || len(n.listeners)+len(n.unheard) != 0 {
			t.Fatalf("heard %v; %d listen, of %d nobody has heard", heard, len(n.listeners), len(n.unheard))
		}
	}
}
