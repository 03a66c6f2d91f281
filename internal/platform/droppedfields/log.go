// Package droppedfields logs the fields that the API server drops from what a program writes,
// because another operator's definition of a kind does not have them. The API server warns of them
// in the answer to each write.
package droppedfields

import (
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// maxLogged bounds the fields that are remembered. Names of map entries are part of a path, so a
// user could otherwise create an unbounded number of paths.
const maxLogged = 1000

// LogOnce makes the clients of a configuration log each dropped field once for each kind. Other
// warnings still reach the handler of the configuration.
func LogOnce(config *rest.Config, log logr.Logger) {
	l := &fieldLog{log: log, logged: map[field]bool{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, l} })
}

// field is a field of a kind, with [] for the index of a list.
type field struct{ resource, path string }

// fieldLog logs each field once.
type fieldLog struct {
	log logr.Logger

	mu     sync.Mutex // guards logged
	logged map[field]bool
}

// logOnce logs a field unless it was logged before.
func (l *fieldLog) logOnce(f field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logged[f] || len(l.logged) >= maxLogged {
		return
	}
	l.logged[f] = true
	l.log.Info("The API server drops a field, because its definition of the kind does not have it; k8s4r doctor lists all of them", "resource", f.resource, "field", f.path)
}

// transport takes the warnings about dropped fields out of answers.
type transport struct {
	http.RoundTripper
	*fieldLog
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(req)
	if err != nil || len(answer.Header["Warning"]) == 0 {
		return answer, err
	}
	resource := resourceOf(req.URL.Path)
	var others []string
	for _, header := range answer.Header["Warning"] {
		if paths := droppedPaths(header); len(paths) > 0 {
			for _, path := range paths {
				t.logOnce(field{resource, path})
			}
			continue
		}
		others = append(others, header)
	}
	answer.Header["Warning"] = others
	return answer, nil
}

// WrappedRoundTripper returns the transport that t wraps, for client-go.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

var (
	droppedField = regexp.MustCompile(`^unknown field "(.*)"$`)
	listIndex    = regexp.MustCompile(`\[[0-9]+\]`)
)

// droppedPaths returns the paths of dropped fields in a Warning header. None if the header has any
// other warning.
func droppedPaths(header string) []string {
	warnings, errs := utilnet.ParseWarningHeaders([]string{header})
	if len(errs) > 0 {
		return nil
	}
	var paths []string
	for _, w := range warnings {
		found := droppedField.FindStringSubmatch(w.Text)
		if found == nil {
			return nil
		}
		paths = append(paths, listIndex.ReplaceAllString(found[1], "[]"))
	}
	return paths
}

// resourceOf returns the resource that a request is about, such as jobflows.flow.volcano.sh. Empty
// if it is about none of an API group.
func resourceOf(path string) string {
	_, path, found := strings.Cut(path, "/apis/")
	parts := strings.Split(path, "/") // group, version, [namespaces, NAMESPACE,] resource, …
	if len(parts) > 4 && parts[2] == "namespaces" {
		parts = append(parts[:2], parts[4:]...)
	}
	if !found || len(parts) < 3 {
		return ""
	}
	return parts[2] + "." + parts[0]
}
