// Package kit holds the helpers that every controller needs: expectations about
// its own writes, requeue times, per-object memory, adoption of existing objects
// and yielding to another operator of the same kind.
package kit
