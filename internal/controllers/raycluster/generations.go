package raycluster

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// Pod names are derived from the generation of their group, which a replacement increases. It is
// stored in an annotation of the cluster, not in memory: a create that was in flight when the
// controller stopped and the create after its restart then have the same name, and the second gets
// AlreadyExists. Without this, a cluster could get two heads.

// maxGeneration bounds the numbers of the annotation, which users can edit. Larger ones count as 0.
const maxGeneration = 1_000_000_000

// generationsOf returns the generations in the annotation by group. Invalid entries are ignored.
func generationsOf(c *rayv1.RayCluster) map[string]int {
	var written map[string]int
	if json.Unmarshal([]byte(c.Annotations[rayv1.AnnotationRefilled]), &written) != nil {
		return nil
	}
	all := make(map[string]int, len(written))
	for group, generation := range written {
		group, _, _ = strings.Cut(group, "/") // earlier versions had an entry for each slot: group/index
		if group != "" && generation > all[group] && generation <= maxGeneration {
			all[group] = generation
		}
	}
	return all
}

// formatGenerations returns the value of the annotation.
func formatGenerations(generations map[string]int) string {
	text, err := json.Marshal(generations)
	if err != nil {
		panic(err) // a map of strings to numbers
	}
	return string(text)
}

// raiseGeneration gives the missing Pods of a group new names. They are created after the generation
// is written.
func (p *plan) raiseGeneration(group string) {
	if p.out.Generations == nil {
		p.out.Generations = maps.Clone(p.Generations)
		maps.DeleteFunc(p.out.Generations, func(group string, _ int) bool { return !p.hasGroup(group) })
		if p.out.Generations == nil {
			p.out.Generations = map[string]int{}
		}
	}
	p.out.Generations[group] = p.Generations[group] + 1
	p.addReason("raise the generation of group %s to %d: earlier Pods had the names of the missing ones", group, p.out.Generations[group])
}

// hasGroup reports whether the cluster has a group of this name.
func (p *plan) hasGroup(name string) bool {
	for i := range p.c.Spec.WorkerGroupSpecs {
		if p.c.Spec.WorkerGroupSpecs[i].GroupName == name {
			return true
		}
	}
	return name == rayv1.HeadGroup
}

// wasNameUsed reports whether a Pod in the slot has had this name since its generation was raised, or
// a Pod has it now.
func (p *plan) wasNameUsed(s slot, name string) bool {
	return p.PastNames[s][name] || p.isNameTaken(name)
}

// writeGenerations writes the annotation. If generations is nil, it does nothing.
func (c *Controller) writeGenerations(ctx context.Context, cluster *rayv1.RayCluster, generations map[string]int) error {
	if generations == nil {
		return nil
	}
	return c.patchMetadata(ctx, cluster, map[string]any{"annotations": map[string]string{rayv1.AnnotationRefilled: formatGenerations(generations)}})
}
