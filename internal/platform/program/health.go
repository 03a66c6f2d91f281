package program

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// checkPatience bounds one check. Kubelets give up after a second.
const checkPatience = 800 * time.Millisecond

// Check is one condition of a healthy program.
type Check struct {
	Name string
	// Test returns an error if the check fails, else a note, which may be empty.
	Test func(context.Context) (note string, err error)
	// Advisory checks are listed and do not fail. They are for what a program can do
	// without: an archive that is down must not make the webhook unready.
	Advisory bool
}

// Health serves the health endpoints of a program. The zero value has no checks and is
// healthy.
type Health struct {
	mu          sync.Mutex
	live, ready []Check
}

// AddLive adds a check whose failure means that the program must be restarted.
func (h *Health) AddLive(c Check) { h.addCheck(&h.live, c) }

// AddReady adds a check whose failure means that the program cannot do its work now.
func (h *Health) AddReady(c Check) { h.addCheck(&h.ready, c) }

func (h *Health) addCheck(to *[]Check, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*to = append(*to, c)
}

// AddAdvice adds an advisory check to a manager from NewCheckedManager. Others ignore it.
func AddAdvice(mgr ctrl.Manager, name string, test func(context.Context) (note string, err error)) {
	if m, ok := mgr.(checked); ok {
		m.health.AddReady(Check{Name: name, Test: test, Advisory: true})
	}
}

// NewCheckedManager returns mgr with its checks in h.
func NewCheckedManager(mgr ctrl.Manager, h *Health) ctrl.Manager { return checked{mgr, h} }

type checked struct {
	ctrl.Manager
	health *Health
}

// AddHealthzCheck implements ctrl.Manager.
func (m checked) AddHealthzCheck(name string, c healthz.Checker) error {
	m.health.AddLive(Check{Name: name, Test: adaptChecker(c)})
	return nil
}

// AddReadyzCheck implements ctrl.Manager.
func (m checked) AddReadyzCheck(name string, c healthz.Checker) error {
	m.health.AddReady(Check{Name: name, Test: adaptChecker(c)})
	return nil
}

// adaptChecker adapts a check of controller-runtime, which takes a request and reads only its context.
func adaptChecker(c healthz.Checker) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		if err != nil {
			return "", err
		}
		return "", c(r)
	}
}

// finding is the result of a check.
type finding struct {
	Check
	note string
	err  error
}

func (f finding) isFailed() bool { return f.err != nil && !f.Advisory }

// statusLine prints a check like kube-apiserver, but with the reason of a failure.
func (f finding) statusLine() string {
	switch {
	case f.err != nil && f.Advisory:
		return fmt.Sprintf("[!]%s failed, which does not count: %v", f.Name, f.err)
	case f.err != nil:
		return fmt.Sprintf("[-]%s failed: %v", f.Name, f.err)
	case f.note != "":
		return fmt.Sprintf("[+]%s ok: %s", f.Name, f.note)
	}
	return fmt.Sprintf("[+]%s ok", f.Name)
}

// runChecks runs checks concurrently, so that together they take no longer than one.
func runChecks(ctx context.Context, checks []Check) []finding {
	found := make([]finding, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkPatience)
			defer cancel()
			note, err := c.Test(ctx)
			found[i] = finding{c, note, err}
		})
	}
	wg.Wait()
	return found
}

// Ready returns the first error of the ready checks, or nil.
func (h *Health) Ready(ctx context.Context) error {
	for _, f := range runChecks(ctx, h.listChecks(&h.ready)) {
		if f.isFailed() {
			return fmt.Errorf("%s: %w", f.Name, f.err)
		}
	}
	return nil
}

func (h *Health) listChecks(of *[]Check) []Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(*of)
}

// Register serves /livez, /healthz, which is the same, and /readyz, and each check by itself
// below them. With ?verbose they list each result; ?exclude=NAME leaves a check out.
func (h *Health) Register(mux *http.ServeMux) {
	for path, of := range map[string]*[]Check{"livez": &h.live, "healthz": &h.live, "readyz": &h.ready} {
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			checks := slices.DeleteFunc(h.listChecks(of), func(c Check) bool { return slices.Contains(query["exclude"], c.Name) })
			answer(w, path, runChecks(r.Context(), checks), query.Has("verbose"))
		})
		mux.HandleFunc("GET /"+path+"/{check}", func(w http.ResponseWriter, r *http.Request) {
			checks := slices.DeleteFunc(h.listChecks(of), func(c Check) bool { return c.Name != r.PathValue("check") })
			if len(checks) == 0 {
				http.NotFound(w, r)
				return
			}
			answer(w, path, runChecks(r.Context(), checks), r.URL.Query().Has("verbose"))
		})
	}
}

// answer writes ok, or all results, as kube-apiserver does.
func answer(w http.ResponseWriter, path string, found []finding, verbose bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	bad := slices.ContainsFunc(found, finding.isFailed)
	if !bad && !verbose {
		fmt.Fprint(w, "ok")
		return
	}
	verdict := "passed"
	if bad {
		verdict = "failed"
		w.WriteHeader(http.StatusInternalServerError)
	}
	for _, f := range found {
		fmt.Fprintln(w, oneLine(f.statusLine()))
	}
	fmt.Fprintf(w, "%s check %s\n", path, verdict)
}

// oneLine keeps a reason of several lines from looking like several checks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
