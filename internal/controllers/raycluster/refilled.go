package raycluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// How often each place was filled anew stands with the cluster, and not in memory: the
// create that a controller had under way when it died, and the one of the controller
// after it, are then of the same name, and the second meets the first. Two heads would
// be more than a Pod too many: nobody may choose between them.

// refilledOf is what a cluster says of that. What cannot be read counts as never.
func refilledOf(c *rayv1.RayCluster) map[slot]int {
	var written map[string]int
	if json.Unmarshal([]byte(c.Annotations[rayv1.AnnotationRefilled]), &written) != nil {
		return nil
	}
	all := make(map[slot]int, len(written))
	for place, times := range written {
		i := strings.LastIndexByte(place, '/')
		index, err := strconv.Atoi(place[i+1:])
		if i > 0 && err == nil && times > 0 {
			all[slot{place[:i], index}] = times
		}
	}
	return all
}

// written is what the annotation says.
func written(refilled map[slot]int) string {
	all := make(map[string]int, len(refilled))
	for s, times := range refilled {
		all[fmt.Sprintf("%s/%d", s.group, s.index)] = times
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}

// refill asks for another name in a place. The Pod is created once that is written down.
func (p *plan) refill(s slot) {
	if p.out.Refilled == nil {
		p.out.Refilled = map[slot]int{}
		groups := map[string]bool{rayv1.HeadGroup: true}
		for i := range p.c.Spec.WorkerGroupSpecs {
			groups[p.c.Spec.WorkerGroupSpecs[i].GroupName] = true
		}
		for old, times := range p.Refilled {
			if groups[old.group] {
				p.out.Refilled[old] = times
			}
		}
	}
	p.why("fill place %d of group %s anew", s.index, s.group)
	p.out.Refilled[s] = p.Refilled[s] + 1
}

// used tells whether a Pod has had a name before.
func (p *plan) used(s slot, name string) bool { return p.Met[s][name] || p.held(name) }

// writeRefilled writes it down. Nil: it stands there already.
func (c *Controller) writeRefilled(ctx context.Context, cluster *rayv1.RayCluster, refilled map[slot]int) error {
	if refilled == nil {
		return nil
	}
	return c.patchMetadata(ctx, cluster, map[string]any{"annotations": map[string]string{rayv1.AnnotationRefilled: written(refilled)}})
}
