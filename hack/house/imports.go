package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const module = "k8s4r.io/k8s4r/"

// layers is the order of imports, lowest first. A folder imports only from lower layers, and
// not from its own layer. Folders other than api, cmd and the like are below internal/.
var layers = [][]string{
	{"api", "protocol", "config", "web"}, // config and web hold files that programs embed
	{"core"},
	{"platform", "archive", "robot"},
	{"scheduler"},
	{"controllers", "console", "broker"},
	{"manager", "server", "cli", "hostnode"},
	{"cmd", "standalone"},
}

// unordered may import anything: tests and tools. Of them, code may import nothing.
var unordered = []string{"testkit", "test", "hack", "tools"}

// sharedControllers are the folders below controllers that each controller may import.
// The others communicate only through the API server.
var sharedControllers = []string{"kit"}

// allowedSiblings are imports within one layer that are needed, with the reason.
var allowedSiblings = []struct{ from, to, reason string }{}

// countUpwardImports returns the imports that break the order.
func countUpwardImports(t *tree) (any, []offender) {
	var found []offender
	for _, f := range t.selectedCode() {
		for _, spec := range f.syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil || !strings.HasPrefix(imported, module) {
				continue
			}
			if why := checkImport(f.path, strings.TrimPrefix(imported, module)); why != "" {
				text := fmt.Sprintf("imports %s: %s", strings.TrimPrefix(imported, module), why)
				found = append(found, offender{f.path, f.fset.Position(spec.Pos()).Line, text})
			}
		}
	}
	return len(found), found
}

// checkImport returns why a file must not import the package, or an empty string if it may.
func checkImport(file, imported string) string {
	from, to := getFolder(file), getFolder(imported)
	switch fromLayer, toLayer := findLayer(from), findLayer(to); {
	case slices.Contains(unordered, from):
		return ""
	case slices.Contains(unordered, to):
		return to + " is for tests and tools only"
	case from == to:
		return checkController(file, imported)
	case fromLayer < 0:
		return from + " is in no layer"
	case toLayer < 0:
		return to + " is in no layer"
	case fromLayer < toLayer:
		return from + " is below " + to
	case fromLayer == toLayer && !isAllowedSibling(from, to):
		return from + " and " + to + " are siblings"
	}
	return ""
}

// checkController returns why a controller must not import another one.
func checkController(file, imported string) string {
	if getFolder(file) != "controllers" {
		return ""
	}
	from, to := getController(file), getController(imported)
	if from == to || slices.Contains(sharedControllers, to) {
		return ""
	}
	return "controllers do not import each other"
}

// getFolder returns the folder of a path whose place in the order counts.
func getFolder(p string) string {
	parts := strings.Split(p, "/")
	if parts[0] == "internal" && len(parts) > 1 {
		return parts[1]
	}
	return parts[0]
}

// getController returns the folder below internal/controllers.
func getController(p string) string {
	parts := strings.Split(p, "/")
	return parts[min(2, len(parts)-1)]
}

// findLayer returns the index of the folder's layer, or -1 if it has none.
func findLayer(folder string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, folder) })
}

func isAllowedSibling(from, to string) bool {
	for _, s := range allowedSiblings {
		if s.from == from && s.to == to {
			return true
		}
	}
	return false
}

// countInternalFolders returns the folders directly below internal/, selected or not.
func countInternalFolders(t *tree) (any, []offender) {
	var found []offender
	for _, f := range t.files {
		parts := strings.Split(f.path, "/")
		if parts[0] != "internal" || len(parts) < 3 {
			continue
		}
		o := offender{"internal/" + parts[1], 0, "folder"}
		if !slices.Contains(found, o) {
			found = append(found, o)
		}
	}
	return len(found), found
}
