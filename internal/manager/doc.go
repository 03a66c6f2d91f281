// Package manager is the program k8s4r-manager: all controllers. It has no connection to robots.
package manager
