// Package robotidentity decides which key speaks for a robot: by policy, or as
// an operator says. It notices robots that have a new key, and machines that
// want to be a robot which another one is.
package robotidentity
