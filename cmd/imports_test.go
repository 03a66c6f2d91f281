// Package cmd_test guards what each program links.
package cmd_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "k8s4r.io/k8s4r/"

// deps lists everything that a package of this module links.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", module+pkg).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

func TestImportRules(t *testing.T) {
	rules := []struct {
		name   string
		pkg    string
		banned []string
	}{
		{"the agent runs on small robots and speaks only wire",
			"cmd/k8s4r-agent", []string{"k8s.io/", "sigs.k8s.io/", module + "api", module + "internal/bridge", "github.com/prometheus/", "gocloud.dev/", module + "internal/archive", "modernc.org/", "database/sql", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", module + "internal/tracing"}},
		{"the state machines need nothing but the standard library",
			"internal/lifecycle", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "golang.org/x/", module + "api"}},
		{"the wire needs nothing but the state machines",
			"internal/wire", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "golang.org/x/", module + "api"}},
		{"where a span belongs is computed, by agents too",
			"internal/traceparent", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "golang.org/x/", "go.opentelemetry.io/", module + "api"}},
		{"the manager does not speak MQTT",
			"cmd/k8s4r-manager", []string{"github.com/eclipse/paho", "github.com/mochi-mqtt", module + "internal/bridge", module + "internal/agent"}},
		{"the server does not decide where work runs",
			"cmd/k8s4r-server", []string{module + "internal/placement", module + "internal/controllers", module + "internal/agent"}},
		{"the console changes nothing but through the API server, and speaks to no robot",
			"cmd/k8s4r-console", []string{module + "internal/bridge", module + "internal/broker", module + "internal/agent", module + "internal/manager", module + "internal/server",
				module + "internal/testkit", "github.com/mochi-mqtt", "k8s.io/kubernetes/", "go.etcd.io/", "gocloud.dev/"}},
		{"placement is pure: no client, no network",
			"internal/placement", []string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime", "net/http"}},
		{"the API's types are for everyone to import",
			"api/robot/v1alpha1", []string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime", module + "internal"}},
		{"the lean command line carries no API server",
			"cmd/kubectl-k8s4r", []string{"k8s.io/kubernetes/", "go.etcd.io/", "gocloud.dev/", module + "internal/bridge"}},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, dep := range deps(t, r.pkg) {
				for _, banned := range r.banned {
					if strings.HasPrefix(dep, banned) {
						t.Errorf("%s links %s", r.pkg, dep)
					}
				}
			}
		})
	}
}

// loops are the controllers. Beside them internal/controllers has pure packages, such as demand.
var loops = []string{"job", "taskgroup", "task", "robot", "robotidentity", "jobflow", "jobtemplate", "vcjob", "raycluster", "cronjobflow", "archive"}

func TestControllersNeverImportEachOther(t *testing.T) {
	for _, one := range loops {
		all := deps(t, "internal/controllers/"+one)
		for _, other := range loops {
			if other != one && slices.Contains(all, module+"internal/controllers/"+other) {
				t.Errorf("%s links %s: the API server carries their state", one, other)
			}
		}
	}
}

func TestTheConsoleRunsNoController(t *testing.T) {
	all := deps(t, "cmd/k8s4r-console")
	for _, one := range loops {
		if slices.Contains(all, module+"internal/controllers/"+one) {
			t.Errorf("cmd/k8s4r-console links the controller %s: it asks the API server, and controllers act", one)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
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
