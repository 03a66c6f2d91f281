// Package scheduler is the cluster scheduler: it reserves robots for waiting tasks.
//
// One loop serves existing Tasks that wait, and TaskGroups that request robots before
// they create their Tasks. Its state comes from informers: a cycle never lists objects,
// and the scheduler writes nothing to the API server. The task controller writes the
// decisions.
package scheduler
