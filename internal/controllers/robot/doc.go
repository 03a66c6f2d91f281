// Package robot approves robots and keeps their phase: Online while they are
// in contact, Unknown when their connection broke, Offline when they have been
// silent for too long.
package robot
