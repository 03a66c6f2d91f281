package driver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FormatEnv returns an environment as execve expects it, sorted.
func FormatEnv(env map[string]string) ([]string, error) {
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return nil, fmt.Errorf("env %q is not a valid name: must not be empty or contain = or a NUL byte", k)
		}
		if strings.Contains(env[k], "\x00") {
			return nil, fmt.Errorf("env %s contains a NUL byte", k)
		}
		list = append(list, k+"="+env[k])
	}
	return list, nil
}
