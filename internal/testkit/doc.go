// Package testkit holds what tests share: a real API server, a whole `k8s4r up`, programs that
// can be killed and restarted, and functions that wait for a condition.
package testkit
