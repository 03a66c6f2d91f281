package build

import "fmt"

// atLeast tells whether a version of Ray is 2.minor or newer. One that is not
// known is taken for an old one.
func atLeast(version string, minor int) bool {
	var major, has int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &has); n < 2 {
		return false
	}
	return major > 2 || major == 2 && has >= minor
}
