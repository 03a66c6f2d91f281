// Package jobflow creates the Jobs of JobFlows in dependency order and writes their status
// (docs/reference/kinds/jobflow.md). observe reads, Plan decides, apply writes. Plan takes the state
// of a step from its Job in the cache, else from the last seen state of a deleted Job,
// else from the flow's status.
package jobflow
