// Package stepjob builds the Job of a flow's step: the template's spec, changed by the
// step's patch, with references to parameters and to outputs of earlier steps replaced.
// It also evaluates the step's when.
//
// # Patch
//
// patch.jobSpec is applied to the template's spec as a strategic merge patch: objects
// field by field, lists of named items by the merge key of Kubernetes, other lists as a
// whole. Tasks of a pod job are merged by name, which defaults to default0, default1 and
// so on, in the template and in the patch; taskGroups, tasks and initTasks of a robot Job
// are merged by name, too. A patch cannot delete anything: null is ignored. Unknown
// fields, values of a wrong type, and added tasks without required fields are errors. A
// patch that reaches a privileged task must repeat the privilege.
//
// # References
//
// $(params.NAME) and $(flows.STEP.outputs.NAME) are replaced in the env, command and args
// of a template: of containers and init containers, and of the configs of robot tasks,
// including JVM options. $$(params.NAME) is the literal text $(params.NAME). All
// other dollars are kept for the kubelet and for shells. Values are not expanded again,
// neither here nor by the kubelet or the agent: their dollars are escaped.
//
// # When
//
// A when is a CEL expression over
//
//	params.NAME                   a string
//	flows.STEP.outputs.NAME       a string
//	flows.STEP.state              Completed, Failed, Skipped, Running or Pending
//
// where a name with a dash is put in brackets: flows['my-step'].outputs.x. Numbers are
// converted with double(…) and int(…): double(flows.train.outputs.accuracy) > 0.9. Check
// an output that may be missing first: has(flows.train.outputs.accuracy) && …. A step may
// refer to the steps that it depends on, directly or indirectly.
package stepjob
