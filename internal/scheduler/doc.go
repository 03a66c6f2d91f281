// Package scheduler decides which robot takes which waiting task.
//
// One loop serves Tasks that wait in the cluster, and TaskGroups that ask for robots
// before they create their Tasks. Its state comes from informers: a cycle never lists,
// and the scheduler writes nothing to the API server. The task controller writes what
// was decided.
package scheduler
