// Package wish is what people may ask of an object, and what follows. Each judge is a pure
// function: it writes the wish into the spec of the object that it is given and says what
// became of it, or says why not and what is possible instead. The manager takes it up from
// there.
package wish

import (
	"fmt"
	"strings"
)

// maxShown bounds the names in a sentence.
const maxShown = 10

// Few lists some names, and says how many there are beside them.
func Few(names []string) string {
	shown := names[:min(len(names), maxShown)]
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
