// Package manager is the program k8s4r-manager: all controllers, and nothing
// that speaks to a robot.
package manager
