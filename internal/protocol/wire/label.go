package wire

import (
	"fmt"
	"strings"
)

// The longest name and value of a label, and the longest prefix of a name, in bytes.
const (
	maxLabelPart   = 63
	maxLabelPrefix = 253
)

// ValidateLabel returns an error if a robot's label does not follow the syntax of Kubernetes
// labels. Commands may contain the value, so it must have no characters that mean something to
// a shell.
func ValidateLabel(name, value string) error {
	if !isLabelName(name) {
		return fmt.Errorf("label %.100q: the name must be at most 63 letters, digits, '-', '_' and '.' that start and end with a letter or digit, with an optional prefix such as example.com/", name)
	}
	if value != "" && !isLabelPart(value) {
		return fmt.Errorf("label %.100q: the value %.100q must be empty, or at most 63 letters, digits, '-', '_' and '.' that start and end with a letter or digit", name, value)
	}
	return nil
}

// isLabelName reports whether s is a label part, with or without a DNS subdomain as prefix.
func isLabelName(s string) bool {
	prefix, name, hasPrefix := strings.Cut(s, "/")
	if !hasPrefix {
		return isLabelPart(s)
	}
	if len(prefix) > maxLabelPrefix {
		return false
	}
	for label := range strings.SplitSeq(prefix, ".") {
		// Kubernetes does not limit the length of each part of a subdomain.
		if label == "" || strings.Trim(label, "-") != label || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return isLabelPart(name)
}

// isLabelPart reports whether s is a name without prefix, or a value that is not empty.
func isLabelPart(s string) bool {
	if s == "" || len(s) > maxLabelPart || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
