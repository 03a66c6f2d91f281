package lifecycle

import (
	"maps"
	"slices"
)

// table maps a state and a signal to the next state. A state accepts only the signals that it has
// an entry for.
type table[S ~string, G ~string] map[S]map[G]S

// nextState returns the state that follows from signal g in state s, or s and false if s does not
// accept g.
func (t table[S, G]) nextState(s S, g G) (S, bool) {
	to, ok := t[s][g]
	if !ok {
		return s, false
	}
	return to, true
}

// acceptedSignals returns the signals that state s accepts, sorted.
func (t table[S, G]) acceptedSignals(s S) []G {
	return slices.Sorted(maps.Keys(t[s]))
}
