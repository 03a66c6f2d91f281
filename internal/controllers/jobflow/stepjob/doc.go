// Package stepjob makes the Job of a flow's step: the template's spec, changed by the
// step's patch, with parameters and the outputs of earlier steps filled in. It also
// judges the step's when. It is pure: no client, no clock.
//
// # Patch
//
// patch.jobSpec goes into the template's spec as a strategic merge: objects field by
// field, lists of named things by the key that Kubernetes has for them, other lists
// whole. The tasks of a pod Job go by their names, which are default0, default1… where
// none are given, here as there; the taskGroups, tasks and initTasks of a robot Job go
// by theirs. Nothing can be deleted by a patch: null is as good as not written. A
// field that no Job has, a value of a wrong type, and an added task that lacks what
// every task needs are errors (contract §4 row 1).
//
// # References
//
// $(params.NAME) and $(flows.STEP.outputs.NAME) stand for values in the env, command
// and args of a template (contract §4 row 8): of containers and init containers, and
// of the configs of robot tasks, JVM options included. $$(params.NAME) is the text
// $(params.NAME). All other words with a dollar stay as they are, for the kubelet and
// for shells. What a value contains is never filled in again, neither here nor by the
// kubelet or the agent: each dollar that either would take for a reference is doubled.
//
// # When
//
// A when is a CEL expression (contract §4 row 9) over
//
//	params.NAME                   a string
//	flows.STEP.outputs.NAME       a string
//	flows.STEP.state              Completed, Failed, Skipped, Running or Pending
//
// where a name with a dash goes in brackets: flows['my-step'].outputs.x. Numbers are
// read with double(…) and int(…): double(flows.train.outputs.accuracy) > 0.9. An
// output that may be missing is asked for first: has(flows.train.outputs.accuracy) &&
// …. What a step may refer to are the steps that it depends on, directly or not.
package stepjob
