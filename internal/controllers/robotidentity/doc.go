// Package robotidentity decides which key is accepted for a robot: by policy, or as an
// operator approves. It reports robots with a new key, and other machines that request the
// identity of a robot.
package robotidentity
