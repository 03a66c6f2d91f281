// Package raycluster reconciles RayClusters: a head Pod, groups of worker Pods, and the Services,
// Secrets, Ingresses and RBAC objects that they need (docs/reference/kinds/raycluster.md). It
// implements the behavior of KubeRay's controller and adopts its clusters without restarting them.
package raycluster
