// Package cmd_test checks what each program links.
package cmd_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "k8s4r.io/k8s4r/"

// listDeps returns the import paths of everything that a package of this module links.
func listDeps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", module+pkg).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

// TestPrograms_LinkOnlyWhatTheyMay checks rules that the order of folders cannot express. `make
// house` checks the order itself (upward_imports).
func TestPrograms_LinkOnlyWhatTheyMay(t *testing.T) {
	rules := []struct {
		reason string
		pkg    string
		banned []string
	}{
		{"the agent runs on small robots and uses only the protocol",
			"cmd/k8s4r-agent", []string{"k8s.io/", "sigs.k8s.io/", module + "api", module + "internal/server", module + "internal/platform", module + "internal/archive",
				"github.com/prometheus/", "gocloud.dev/", "modernc.org/", "database/sql", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"}},
		{"the protocol needs nothing but the standard library",
			"internal/protocol/...", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "golang.org/x/", "go.opentelemetry.io/", module + "api", module + "internal/core"}},
		{"the state machines need nothing but the standard library",
			"internal/core/lifecycle", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "golang.org/x/", module + "api"}},
		{"the agent uses the rules of restarts, too",
			"internal/core/restart", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "golang.org/x/", module + "api"}},
		{"placement is pure: no client, no network",
			"internal/core/placement", []string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime", "net/http"}},
		{"the manager does not use MQTT",
			"cmd/k8s4r-manager", []string{"github.com/eclipse/paho", "github.com/mochi-mqtt", module + "internal/server", module + "internal/robot/agent"}},
		{"the server does not schedule tasks",
			"cmd/k8s4r-server", []string{module + "internal/core/placement", module + "internal/scheduler", module + "internal/controllers", module + "internal/robot/agent"}},
		{"the console changes objects only through the API server and does not connect to robots",
			"cmd/k8s4r-console", []string{module + "internal/controllers", module + "internal/scheduler", module + "internal/broker", module + "internal/robot", module + "internal/manager",
				module + "internal/server", module + "internal/testkit", "github.com/mochi-mqtt", "k8s.io/kubernetes/", "go.etcd.io/", "gocloud.dev/"}},
		{"the lean command line carries no API server",
			"cmd/kubectl-k8s4r", []string{"k8s.io/kubernetes/", "go.etcd.io/", "gocloud.dev/", module + "internal/server", module + "internal/controllers"}},
		{"the types of the API can be imported by any client",
			"api/...", []string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime", module + "internal"}},
	}
	for _, r := range rules {
		t.Run(r.reason, func(t *testing.T) {
			for _, dep := range listDeps(t, r.pkg) {
				for _, banned := range r.banned {
					if strings.HasPrefix(dep, banned) {
						t.Errorf("%s links %s", r.pkg, dep)
					}
				}
			}
		})
	}
}

// TestShimProgram_LinksOnlyStandardLibraryAndSys keeps the program small of which each task has a process.
func TestShimProgram_LinksOnlyStandardLibraryAndSys(t *testing.T) {
	for _, dep := range listDeps(t, "internal/robot/shim/k8s4r-shim") {
		first, _, _ := strings.Cut(dep, "/")
		isStandard := !strings.Contains(first, ".")
		if !isStandard && !strings.HasPrefix(dep, module) && !strings.HasPrefix(dep, "golang.org/x/sys/") {
			t.Errorf("the shim's program links %s", dep)
		}
		for _, large := range []string{"net/http", "crypto/tls", "regexp", "text/template"} {
			if dep == large {
				t.Errorf("the shim's program links %s, whose initialization costs each task more than its shim", dep)
			}
		}
	}
}

// controllers are the folders of internal/controllers that reconcile a kind. kit is shared by all.
var controllers = []string{"archive", "cronjobflow", "job", "jobflow", "jobtemplate", "raycluster", "retention", "robot", "robotidentity", "rollout", "task", "taskgroup", "vcjob"}

func TestControllers_DoNotLinkEachOther(t *testing.T) {
	for _, one := range controllers {
		deps := listDeps(t, "internal/controllers/"+one)
		for _, other := range controllers {
			if other != one && slices.Contains(deps, module+"internal/controllers/"+other) {
				t.Errorf("%s links %s: their state reaches each other through the API server", one, other)
			}
		}
	}
}

func TestPackages_HaveDocComments(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}\t{{.Doc}}{{end}}", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, doc, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if pkg != "" && doc == "" {
			t.Errorf("%s has no package comment", pkg)
		}
	}
}
