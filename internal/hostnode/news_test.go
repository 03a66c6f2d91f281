package hostnode

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/shim"
)

// TestNewsKeepTheirOrder has a shim say more while somebody begins to listen who has
// missed the first of it.
func TestNewsKeepTheirOrder(t *testing.T) {
	const early, all = 20, 40
	for range 5000 {
		n := &Node{listeners: map[*shims.Shim]func(shims.News){}, unheard: map[*shims.Shim][]shims.News{}}
		s := &shims.Shim{}
		say := func(i int) {
			n.bring(shims.News{Shim: s, State: shim.State{Exit: &shim.Exit{Code: i}}, Gone: i == all-1})
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
		n.listen(s, func(news shims.News) {
			if news.Exit.Code == 0 {
				close(begins)
			}
			runtime.Gosched() // lets the shim go on, if nothing else keeps it
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
