// Package testkit is what the tests share: a real API server, a whole
// `k8s4r up`, and ways to wait for what must come true.
package testkit
