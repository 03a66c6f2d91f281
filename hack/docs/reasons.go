package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// reasonSources are the packages whose constants conditions, reasons and events are made of, with
// the headings of their tables.
var reasonSources = []struct{ dir, heading string }{
	{"api/robot/v1alpha1", "Job, TaskGroup, Task, Robot and MaintenanceWindow"},
	{"internal/protocol/wire", "Task: how an attempt ended, as the robot reports it"},
	{"internal/core/taskstate", "Task: why it waits"},
	{"internal/core/placement/apiconv", "Task: demand"},
	{"internal/controllers/task", "Task: decisions of the manager"},
	{"internal/server/gateway", "Task: Secrets and arrays. Task and Robot: restore from a backup"},
	{"internal/controllers/taskgroup", "TaskGroup"},
	{"internal/controllers/rollout", "Rollout"},
	{"internal/core/rollout", "Rollout: agents that cannot be updated"},
	{"internal/controllers/robot", "Robot: approval"},
	{"internal/core/taskcounts", "Job and TaskGroup: deadline"},
	{"internal/controllers/job", "Job: actions"},
	{"internal/controllers/archive", "All kinds: archive"},
	{"internal/controllers/retention", "Namespace: retention"},
	{"api/flow/v1alpha1", "JobFlow: conditions"},
	{"internal/controllers/jobflow", "JobFlow: steps"},
	{"api/cron/v1alpha1", "CronJobFlow"},
	{"internal/controllers/vcjob", "vcjob"},
	{"api/ray/v1", "RayCluster: conditions"},
	{"internal/controllers/raycluster", "RayCluster: events"},
}

// reasonName matches the constants that are listed.
var reasonName = regexp.MustCompile(`^([Rr]eason|Condition)[A-Z]|^(HeadPodReady|ReplicaFailure|RayCluster(Provisioned|Suspending|Suspended))$`)

// reason is one condition type or reason.
type reason struct {
	value, meaning string
	isCondition    bool
}

func renderReasons(root string, pages map[string]string) error {
	p := newPage("Conditions and reasons")
	p.addLine("\nAll condition types and reasons by kind. Reasons are those of conditions, of `status.reason` and of")
	p.addLine("events. What follows from them is on the [pages of the kinds](kinds/).")
	for _, source := range reasonSources {
		reasons, err := parseReasons(filepath.Join(root, source.dir))
		if err != nil {
			return err
		}
		if len(reasons) == 0 {
			return fmt.Errorf("%s: has no constants of reasons", source.dir)
		}
		p.addLine("\n## %s", source.heading)
		p.addTable("value", "is a", "meaning")
		for _, r := range reasons {
			what := "reason"
			if r.isCondition {
				what = "condition"
			}
			if r.meaning == "" {
				r.meaning = meanings[source.dir][r.value]
			}
			if r.meaning == "" {
				return fmt.Errorf("%s: constant of %q: needs a doc comment, or an entry in meanings of hack/docs", source.dir, r.value)
			}
			p.addRow(formatCode(r.value), what, r.meaning)
		}
	}
	pages["reasons.md"] = p.String()
	return nil
}

// parseReasons returns the conditions and reasons of a package, sorted by value.
func parseReasons(dir string) ([]reason, error) {
	isSource := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), dir, isSource, parser.ParseComments) //nolint:staticcheck // needs no types
	if err != nil {
		return nil, err
	}
	var found []reason
	for _, pkg := range packages {
		for _, file := range pkg.Files {
			for _, decl := range file.Decls {
				if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.CONST {
					found = append(found, reasonsOf(g)...)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b reason) int {
		return strings.Compare(a.value+a.meaning, b.value+b.meaning)
	})
	return found, nil
}

// reasonsOf returns the conditions and reasons of one const declaration.
func reasonsOf(g *ast.GenDecl) (found []reason) {
	for _, spec := range g.Specs {
		s, ok := spec.(*ast.ValueSpec)
		if !ok || len(s.Values) != 1 || !reasonName.MatchString(s.Names[0].Name) {
			continue
		}
		literal, ok := s.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil || value == "" {
			continue
		}
		found = append(found, reason{
			value:       value,
			meaning:     findMeaning(g, s),
			isCondition: !strings.HasPrefix(strings.ToLower(s.Names[0].Name), "reason"),
		})
	}
	return found
}

// plainStart matches the start of comments that the tables leave out.
var plainStart = regexp.MustCompile(`^is the (status\.)?reason of `)

// findMeaning returns the comment of a constant without its name. A constant of a group that has
// no comment of its own has none.
func findMeaning(g *ast.GenDecl, s *ast.ValueSpec) string {
	text := s.Doc.Text()
	if text == "" {
		text = s.Comment.Text()
	}
	if text == "" && len(g.Specs) == 1 {
		text = g.Doc.Text()
	}
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), s.Names[0].Name)
	text = strings.TrimSpace(strings.TrimPrefix(text, ":"))
	text = plainStart.ReplaceAllString(text, "of ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
