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

// Check is one thing that a program looks at when it is asked how it is.
type Check struct {
	Name string
	// Test says what is wrong, or what is so, which may be nothing.
	Test func(context.Context) (note string, err error)
	// Advisory: what it says is told, and changes nothing. For what a program can do
	// without: an archive that is down must not take the webhook away from the API server.
	Advisory bool
}

// Health is what a program answers to who asks how it is. The zero value has no checks, and is
// fine.
type Health struct {
	mu          sync.Mutex
	live, ready []Check
}

// AddLive adds a check of which a failure means that the program must be started anew.
func (h *Health) AddLive(c Check) { h.add(&h.live, c) }

// AddReady adds a check of which a failure means that the program does not do its work now.
func (h *Health) AddReady(c Check) { h.add(&h.ready, c) }

func (h *Health) add(to *[]Check, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*to = append(*to, c)
}

// AddAdvice has mgr tell of something that it can do without. One whose checks are not ours
// does not.
func AddAdvice(mgr ctrl.Manager, name string, test func(context.Context) (note string, err error)) {
	if m, ok := mgr.(checked); ok {
		m.health.AddReady(Check{Name: name, Test: test, Advisory: true})
	}
}

// Checked is mgr with its checks in h.
func Checked(mgr ctrl.Manager, h *Health) ctrl.Manager { return checked{mgr, h} }

type checked struct {
	ctrl.Manager
	health *Health
}

// AddHealthzCheck implements ctrl.Manager.
func (m checked) AddHealthzCheck(name string, c healthz.Checker) error {
	m.health.AddLive(Check{Name: name, Test: asked(c)})
	return nil
}

// AddReadyzCheck implements ctrl.Manager.
func (m checked) AddReadyzCheck(name string, c healthz.Checker) error {
	m.health.AddReady(Check{Name: name, Test: asked(c)})
	return nil
}

// asked is a check of controller-runtime, which takes a request and reads only its context.
func asked(c healthz.Checker) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		if err != nil {
			return "", err
		}
		return "", c(r)
	}
}

// finding is what a check has said.
type finding struct {
	Check
	note string
	err  error
}

func (f finding) failed() bool { return f.err != nil && !f.Advisory }

// line is how kube-apiserver prints a check, with the reason that it withholds.
func (f finding) line() string {
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

// examine runs checks side by side, so that together they take no longer than one.
func examine(ctx context.Context, checks []Check) []finding {
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

// Ready says what keeps the program from its work. Nil: nothing.
func (h *Health) Ready(ctx context.Context) error {
	for _, f := range examine(ctx, h.checks(&h.ready)) {
		if f.failed() {
			return fmt.Errorf("%s: %w", f.Name, f.err)
		}
	}
	return nil
}

func (h *Health) checks(of *[]Check) []Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(*of)
}

// Register serves /livez, /healthz, which is the same, and /readyz, and each check by itself
// below them. With ?verbose they say what each check has said; ?exclude=NAME leaves one out.
func (h *Health) Register(mux *http.ServeMux) {
	for path, of := range map[string]*[]Check{"livez": &h.live, "healthz": &h.live, "readyz": &h.ready} {
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			checks := slices.DeleteFunc(h.checks(of), func(c Check) bool { return slices.Contains(query["exclude"], c.Name) })
			answer(w, path, examine(r.Context(), checks), query.Has("verbose"))
		})
		mux.HandleFunc("GET /"+path+"/{check}", func(w http.ResponseWriter, r *http.Request) {
			checks := slices.DeleteFunc(h.checks(of), func(c Check) bool { return c.Name != r.PathValue("check") })
			if len(checks) == 0 {
				http.NotFound(w, r)
				return
			}
			answer(w, path, examine(r.Context(), checks), r.URL.Query().Has("verbose"))
		})
	}
}

// answer says ok, or all that was found, as kube-apiserver does.
func answer(w http.ResponseWriter, path string, found []finding, verbose bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	bad := slices.ContainsFunc(found, finding.failed)
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
		fmt.Fprintln(w, oneLine(f.line()))
	}
	fmt.Fprintf(w, "%s check %s\n", path, verdict)
}

// oneLine keeps a reason of several lines from looking like several checks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
