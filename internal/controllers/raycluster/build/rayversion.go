package build

import "fmt"

// atLeast reports whether a version of Ray is 2.minor or newer. A version that cannot be parsed
// counts as old.
func atLeast(version string, minor int) bool {
	var major, has int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &has); n < 2 {
		return false
	}
	return major > 2 || major == 2 && has >= minor
}
