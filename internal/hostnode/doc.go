// Package hostnode implements a Node whose Pods are processes of this machine: a kubelet without
// images (docs/how-to/run-pods-without-a-cluster.md).
//
// Each Pod that is bound to the node has a worker, a goroutine that runs in rounds: it handles
// what has arrived (the Pod from the API server, updates of shims, results of probes), plans which
// containers to start and to stop (planPod), carries that out, and writes the Pod's status
// (statusOf). planPod and statusOf are pure.
//
// Each run of a container is the child of a shim (package shim), like a task of a robot. The shims
// keep their states in the node's directory, which holds the entire state of the node: after a
// crash, the node finds its containers there, whether they are still running or have exited.
package hostnode
