// Package actions defines what users may ask of an object, and validates it. Each action is a
// pure function: it edits the spec of the object and returns a message, or an error that names
// what is possible instead. The manager then acts on the spec.
package actions

import (
	"fmt"
	"strings"
)

// maxShown bounds the names in a sentence.
const maxShown = 10

// SummarizeNames lists up to maxShown names and counts the others.
func SummarizeNames(names []string) string {
	shown := names[:min(len(names), maxShown)]
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
