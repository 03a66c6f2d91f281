package raycluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// Refill counts are stored in an annotation of the cluster, not in memory. A create that was in
// flight when the controller stopped and the create after its restart then have the same name, and
// the second gets AlreadyExists. Without this, a cluster could get two heads.

// refilledOf returns the refill counts in the annotation. Invalid entries are ignored.
func refilledOf(c *rayv1.RayCluster) map[slot]int {
	var written map[string]int
	if json.Unmarshal([]byte(c.Annotations[rayv1.AnnotationRefilled]), &written) != nil {
		return nil
	}
	all := make(map[slot]int, len(written))
	for key, times := range written {
		i := strings.LastIndexByte(key, '/')
		index, err := strconv.Atoi(key[i+1:])
		if i > 0 && err == nil && times > 0 {
			all[slot{key[:i], index}] = times
		}
	}
	return all
}

// formatRefilled returns the value of the annotation.
func formatRefilled(refilled map[slot]int) string {
	all := make(map[string]int, len(refilled))
	for s, times := range refilled {
		all[fmt.Sprintf("%s/%d", s.group, s.index)] = times
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // a map of strings to numbers
	}
	return string(text)
}

// refillSlot increases the refill count of a slot. The Pod is created after the count is written.
func (p *plan) refillSlot(s slot) {
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
	p.addReason("refill slot %d of group %s", s.index, s.group)
	p.out.Refilled[s] = p.Refilled[s] + 1
}

// wasNameUsed reports whether a Pod in the slot has had this name, or a Pod has it now.
func (p *plan) wasNameUsed(s slot, name string) bool {
	return p.PastNames[s][name] || p.isNameTaken(name)
}

// writeRefilled writes the annotation. If refilled is nil, it does nothing.
func (c *Controller) writeRefilled(ctx context.Context, cluster *rayv1.RayCluster, refilled map[slot]int) error {
	if refilled == nil {
		return nil
	}
	return c.patchMetadata(ctx, cluster, map[string]any{"annotations": map[string]string{rayv1.AnnotationRefilled: formatRefilled(refilled)}})
}
