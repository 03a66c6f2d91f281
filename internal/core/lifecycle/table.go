package lifecycle

import (
	"maps"
	"slices"
)

// table maps a state and a signal to the next state. What is not in it is not
// allowed.
type table[S ~string, G ~string] map[S]map[G]S

// step returns the state that follows from signal g in state s. When the table
// has no such edge it returns s and false.
func (t table[S, G]) step(s S, g G) (S, bool) {
	to, ok := t[s][g]
	if !ok {
		return s, false
	}
	return to, true
}

// signals lists, sorted, what state s accepts.
func (t table[S, G]) signals(s S) []G {
	return slices.Sorted(maps.Keys(t[s]))
}
