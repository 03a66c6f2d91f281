// Package hostnode is a Node whose Pods are processes of this machine: a kubelet
// without images (docs/hostnode.md).
//
// A Pod that is bound to the node has a worker, a goroutine that goes round after
// round: it takes in what has come (the Pod as the API server has it, the words of
// shims, the answers of probes), plans from that what to start and to stop (Plan),
// does it, and writes down the Pod's status (statusOf). Plan and status are pure.
//
// Each run of a container is the child of a shim (package shim), as a robot's task
// is. What a shim has said lies in the node's directory, so the directory is the
// node's whole memory: a node that was killed finds its containers there, as they
// run on or as they have ended.
package hostnode
