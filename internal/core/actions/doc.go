// Package actions defines the actions of users on objects: pause, cancel, requeue, drain and so
// on. Each action is a pure function that edits the spec of the object and returns a message, or
// an error that lists the allowed actions. The manager then acts on the spec.
package actions

import (
	"fmt"
	"strings"
)

// maxShown bounds the number of names in a message.
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
