// Package vcjob runs the Jobs of batch.volcano.sh where Volcano does not: Pods of
// several sorts, to an end together (docs/spec/vcjob.md).
package vcjob
