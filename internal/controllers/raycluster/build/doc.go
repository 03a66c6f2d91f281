// Package build creates the objects of a RayCluster from its spec: Pods, Services, RBAC objects and
// others. All functions are pure: they do not use the API server, the clock or randomness, and do
// not modify their arguments.
//
// A function returns nil if the cluster does not need its object.
package build

// Version is the value of ray.io/kuberay-version on heads. It must be increased when a hash changes
// for an unchanged spec: heads of another version then get the new hash and stay. Otherwise an
// upgrade of the controller would recreate every cluster.
const Version = "k8s4r-1"
