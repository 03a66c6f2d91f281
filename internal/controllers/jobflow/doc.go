// Package jobflow makes the Jobs of JobFlows in the order of what they depend on, and
// writes what becomes of them (docs/spec/jobflow.md).
//
// observe reads, Plan decides, apply writes. What Plan knows of a step comes from three
// places, the better first: its Job in the cache, the last word of one that was
// deleted, and the flow's own status, which outlives both.
package jobflow
