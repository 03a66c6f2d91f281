// Package build makes the objects of a RayCluster from its spec: Pods, Services and
// what stands around them. Every function is pure. Nothing here asks the API server,
// the clock or chance, and no argument is changed.
//
// A function that makes an object which the cluster does not want returns nil.
package build

// Version of what this package makes, the value of ray.io/kuberay-version on heads.
// It grows when a hash comes out differently for the same spec: heads of another
// version get the new hash and stay, for otherwise a new controller would recreate
// every cluster.
const Version = "k8s4r-1"
