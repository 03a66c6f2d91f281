// Package raycluster runs RayClusters: a head Pod and groups of worker Pods, with what
// stands around them (docs/spec/raycluster.md). It does what KubeRay's controller does,
// and takes its clusters over as they are.
package raycluster
