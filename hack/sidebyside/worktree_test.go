package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// benchSource is a benchmark that prints its version, or waits to be terminated.
const benchSource = `package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		_ = os.WriteFile(os.Args[1], nil, 0o600)
		time.Sleep(time.Hour)
	}
	fmt.Println("a table")
	fmt.Println("{\"version\":VERSION}")
}
`

// startRepository makes a repository of two commits the working directory. The first has no
// benchmark, the second one whose figure is 1; the working tree has one whose figure is 3.
func startRepository(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("GOFLAGS", "-buildvcs=false")
	t.Setenv("TMPDIR", t.TempDir())
	writeFile(t, "go.mod", "module example.com/bench\n\ngo 1.26\n")
	runGit(t, "init", "--quiet")
	commitAll(t)
	writeFile(t, "test/bench/small/main.go", strings.ReplaceAll(benchSource, "VERSION", "1"))
	commitAll(t)
	writeFile(t, "test/bench/small/main.go", strings.ReplaceAll(benchSource, "VERSION", "3"))
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func commitAll(t *testing.T) {
	t.Helper()
	runGit(t, "add", ".")
	runGit(t, "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "m")
}

func runGit(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// checkRemoved checks that nothing is left of the worktree.
func checkRemoved(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "k8s4r-baseline-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if list := strings.TrimSpace(runGit(t, "worktree", "list")); strings.Contains(list, "\n") {
		t.Errorf("a worktree is left:\n%s", list)
	}
}

func TestSideBySide_RunsBothInTurn(t *testing.T) {
	startRepository(t)
	var out, errs bytes.Buffer
	if code := runSideBySide(t.Context(), []string{"-baseline", "HEAD", "./test/bench/small"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var order []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, `{"version"`) {
			order = append(order, strings.TrimSpace(line))
		}
	}
	if got := strings.Join(order, " "); got != `{"version":1} {"version":3} {"version":1} {"version":3}` {
		t.Errorf("runs: %s", got)
	}
	if last := out.String(); !strings.HasSuffix(last, `"rounds":2,"old":{"version":1},"new":{"version":3},"ratio":{"version":3}}`+"\n") {
		t.Errorf("output: %s", last)
	}
	checkRemoved(t)
}

func TestSideBySide_NamesWhatIsWrong(t *testing.T) {
	startRepository(t)
	for _, tc := range []struct{ name, ref, bench, want string }{
		{"unknown ref", "v9", "./test/bench/small", "BASELINE=v9: no such commit"},
		{"a ref that looks like an option", "--help", "./test/bench/small", "BASELINE=--help: no such commit"},
		{"the benchmark is newer", "HEAD^", "./test/bench/small", "has no test/bench/small"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var errs bytes.Buffer
			code := runSideBySide(t.Context(), []string{"-baseline", tc.ref, tc.bench}, &errs, &errs)
			if code != 1 || !strings.Contains(errs.String(), tc.want) {
				t.Errorf("exit code %d, output %s", code, errs.String())
			}
			checkRemoved(t)
		})
	}
}

func TestSideBySide_RemovesWorktreeWhenInterrupted(t *testing.T) {
	startRepository(t)
	ctx, interrupt := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	done := make(chan int)
	var out bytes.Buffer
	go func() {
		done <- runSideBySide(ctx, []string{"-baseline", "HEAD", "./test/bench/small", started}, &out, &out)
	}()
	for _, err := os.Stat(started); err != nil; _, err = os.Stat(started) {
		select {
		case code := <-done:
			t.Fatalf("ended with %d: %s", code, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	interrupt()
	if code := <-done; code != 1 || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	checkRemoved(t)
}
