package archive

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxGone bounds what is remembered while the archive is down. What has a ttl is not removed
// then; this is what people delete.
const maxGone = 10_000

// gone are objects that were deleted, as they were seen last, until they are recorded.
type gone struct {
	mu  sync.Mutex
	all map[request]map[types.UID]corpse
	n   int
}

type corpse struct {
	object client.Object
	at     time.Time
}

func (g *gone) add(r request, o client.Object, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n >= maxGone {
		return
	}
	if g.all == nil {
		g.all = map[request]map[types.UID]corpse{}
	}
	if g.all[r] == nil {
		g.all[r] = map[types.UID]corpse{}
	}
	if _, known := g.all[r][o.GetUID()]; !known {
		g.n++
	}
	g.all[r][o.GetUID()] = corpse{o, at}
}

func (g *gone) of(r request) []corpse {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []corpse
	for _, one := range g.all[r] {
		all = append(all, one)
	}
	return all
}

func (g *gone) done(r request, uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.all[r][uid]; !known {
		return
	}
	g.n--
	if delete(g.all[r], uid); len(g.all[r]) == 0 {
		delete(g.all, r)
	}
}
