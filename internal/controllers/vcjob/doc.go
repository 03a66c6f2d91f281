// Package vcjob runs Jobs of batch.volcano.sh in clusters without Volcano's own
// controllers: groups of Pods that start and end together (docs/reference/kinds/vcjob.md).
package vcjob
