package archive

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxDeletedObjects bounds the memory while the archive is down. The manager deletes no expired
// objects then, so only objects that users delete count.
const maxDeletedObjects = 10_000

// deletedObjects holds the last versions of deleted objects until they are recorded.
type deletedObjects struct {
	mu  sync.Mutex // guards all and n
	all map[request]map[types.UID]deletedObject
	n   int // number of objects in all
}

type deletedObject struct {
	object client.Object
	at     time.Time
}

// addObject adds a deleted object. If there are too many, it drops the object.
func (g *deletedObjects) addObject(r request, o client.Object, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n >= maxDeletedObjects {
		return
	}
	if g.all == nil {
		g.all = map[request]map[types.UID]deletedObject{}
	}
	if g.all[r] == nil {
		g.all[r] = map[types.UID]deletedObject{}
	}
	if _, known := g.all[r][o.GetUID()]; !known {
		g.n++
	}
	g.all[r][o.GetUID()] = deletedObject{o, at}
}

func (g *deletedObjects) objectsOf(r request) []deletedObject {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []deletedObject
	for _, one := range g.all[r] {
		all = append(all, one)
	}
	return all
}

func (g *deletedObjects) removeObject(r request, uid types.UID) {
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
