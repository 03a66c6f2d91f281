// Package robotidentity decides which key is accepted for a robot: the first one that joins
// with a valid token, or the one that an operator approves. It reports robots with a new key,
// and other machines that request the identity of a robot.
package robotidentity
