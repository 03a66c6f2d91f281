package policy

import (
	"errors"
	"strings"
)

// imageReference is a reference to an image with the defaults of the Docker engine filled in.
type imageReference struct {
	repository  string // with its registry
	tag, digest string // empty: none
}

// The registry and the directory of images that name none.
const (
	defaultRegistry   = "docker.io"
	oldRegistry       = "index.docker.io"
	officialImages    = "library"
	defaultTag        = "latest"
	repositoryLetters = "abcdefghijklmnopqrstuvwxyz0123456789._-/"
)

// parseImage splits a reference. It returns false for text that is not one. The id of an image, whole
// or in part, is no reference: it could be that of any image on the robot.
func parseImage(s string) (m imageReference, ok bool) {
	name, digest, hasDigest := strings.Cut(s, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name, m.tag = name[:at], name[at+1:]
		if m.tag == "" || name == "sha256" {
			return m, false
		}
	} else if !hasDigest && strings.Trim(name, "0123456789abcdef") == "" {
		return m, false
	}
	if hasDigest && !strings.Contains(digest, ":") {
		return m, false
	}
	m.digest, m.repository = digest, completeRepository(name)
	return m, m.repository != ""
}

// splitRegistry returns the registry of a name, or of the beginning of one, and the rest.
func splitRegistry(name string) (registry, rest string) {
	first, after, _ := strings.Cut(name, "/")
	switch isRegistry := strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first; {
	case first == oldRegistry:
		return defaultRegistry, after
	case isRegistry:
		return first, after
	}
	return defaultRegistry, name
}

// completeRepository adds the default registry. It returns "" if the name is not valid.
func completeRepository(name string) string {
	registry, rest := splitRegistry(name)
	if registry == defaultRegistry && !strings.Contains(rest, "/") {
		rest = officialImages + "/" + rest
	}
	if strings.Trim(rest, repositoryLetters) != "" {
		return ""
	}
	for part := range strings.SplitSeq(rest, "/") {
		if strings.Trim(part, "._-") == "" {
			return ""
		}
	}
	return registry + "/" + rest
}

// allowsImage reports whether an entry allows an image. A digest decides what the engine pulls,
// whatever the tag beside it.
func allowsImage(entry, reference string) bool {
	m, ok := parseImage(reference)
	if !ok {
		return false
	}
	if prefix, isPrefix := strings.CutSuffix(entry, "/"); isPrefix {
		return strings.HasPrefix(m.repository, completePrefix(prefix)+"/")
	}
	e, ok := parseImage(entry)
	switch {
	case !ok || e.repository != m.repository:
		return false
	case e.digest != "":
		return e.digest == m.digest
	case e.tag == "":
		return true
	case m.digest != "":
		return false
	case m.tag == "":
		return e.tag == defaultTag
	}
	return e.tag == m.tag
}

// completePrefix adds the default registry to the beginning of a repository's name.
func completePrefix(prefix string) string {
	registry, rest := splitRegistry(prefix)
	return strings.TrimSuffix(registry+"/"+rest, "/")
}

// validateImage returns an error for an entry that can match no image.
func validateImage(entry string) error {
	if strings.Contains(entry, "*") {
		return errors.New("must be a repository, or a prefix that ends in a slash; patterns are not supported")
	}
	if prefix, isPrefix := strings.CutSuffix(entry, "/"); isPrefix {
		entry = prefix + "/image"
	}
	if _, ok := parseImage(entry); !ok {
		return errors.New("must be a repository with or without tag or digest, such as registry.example/robots/arm, or a prefix that ends in a slash")
	}
	return nil
}
