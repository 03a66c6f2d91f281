package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tier is a set of checks with one verdict.
type tier struct {
	name string
	// report returns the figures of the last line, given how long the tier took.
	report func(took time.Duration) map[string]any
	stages []stage
}

// stage is a set of lanes that run side by side. The next stage begins when all have ended.
type stage struct {
	lanes []lane
	// required: if a step of this stage fails, no later stage runs.
	required bool
}

// lane is a list of steps that run one after the other. A step that fails does not end its lane.
type lane []step

// step is one check. It writes to out what a reader of the log needs.
type step struct {
	name string
	run  func(ctx context.Context, out io.Writer) outcome
}

// outcome is what one step found.
type outcome struct {
	failures []failure
	flakes   []flake
	// figures are added to the last line of the tier under the step's name. If nil, nothing is.
	figures json.RawMessage
	cpu     time.Duration // that the processes of the step used, user and system
}

// failure is one reason why a tier fails.
type failure struct {
	Step, Package, Test string
	Reason              string // "failed 3 times", "data race", ...
	Output              string // the end of what was printed
}

// flake is a test that failed and passed when it was run again.
type flake struct {
	Package, Test string
	Tries         int // including the one that passed
}

// result is the sum of all outcomes of a tier.
type result struct {
	mu       sync.Mutex // guards what follows; lanes end at the same time
	failures []failure
	flakes   []flake
	figures  map[string]json.RawMessage
	seconds  map[string]float64 // by step
	cpu      map[string]float64 // seconds by step
}

func (r *result) add(name string, o outcome, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range o.failures {
		f.Step = name
		r.failures = append(r.failures, f)
	}
	r.flakes = append(r.flakes, o.flakes...)
	if o.figures != nil {
		r.figures[name] = o.figures
	}
	r.seconds[name] = roundToTenth(took.Seconds())
	r.cpu[name] = roundToTenth(o.cpu.Seconds())
}

// runTier runs all stages, prints what failed and the figures, and returns the exit status.
func runTier(ctx context.Context, t tier, stdout io.Writer) int {
	began := time.Now()
	out := &lockedWriter{w: stdout}
	r := &result{figures: map[string]json.RawMessage{}, seconds: map[string]float64{}, cpu: map[string]float64{}}
	for _, s := range t.stages {
		runStage(ctx, s, began, out, r)
		if ctx.Err() != nil || s.required && len(r.failures) > 0 {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		r.failures = append(r.failures, failure{Step: t.name, Reason: err.Error()})
	}
	printFlakes(stdout, r.flakes)
	printFailures(stdout, r.failures)
	printFigures(stdout, t.report(time.Since(began)), r)
	if len(r.failures) > 0 {
		return 1
	}
	return 0
}

func runStage(ctx context.Context, s stage, began time.Time, out *lockedWriter, r *result) {
	var all sync.WaitGroup
	for _, l := range s.lanes {
		all.Go(func() {
			for _, st := range l {
				if ctx.Err() != nil {
					return
				}
				runStep(ctx, st, began, out, r)
			}
		})
	}
	all.Wait()
}

func runStep(ctx context.Context, s step, began time.Time, out *lockedWriter, r *result) {
	lines := &prefixWriter{to: out, prefix: s.name + " | "}
	start := time.Now()
	fmt.Fprintf(out, "=== %s started at %.0fs\n", s.name, time.Since(began).Seconds())
	o := s.run(ctx, lines)
	lines.flush()
	took := time.Since(start)
	r.add(s.name, o, took)
	verdict := "ok"
	if len(o.failures) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(out, "=== %s %s after %.0fs\n", s.name, verdict, took.Seconds())
}

func printFlakes(w io.Writer, flakes []flake) {
	if len(flakes) == 0 {
		return
	}
	fmt.Fprintln(w, "\nFLAKY: these tests failed and then passed when run again. Repair them.")
	for _, f := range flakes {
		fmt.Fprintf(w, "  %s %s (passed at try %d)\n", f.Package, f.Test, f.Tries)
	}
}

func printFailures(w io.Writer, failures []failure) {
	if len(failures) == 0 {
		return
	}
	fmt.Fprintln(w, "\nFAILED:")
	for _, f := range failures {
		fmt.Fprintf(w, "  %s\n", strings.Join(slices.DeleteFunc([]string{f.Step, f.Package, f.Test, f.Reason}, isEmpty), ": "))
		for line := range strings.Lines(f.Output) {
			fmt.Fprintf(w, "      %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

func isEmpty(s string) bool { return s == "" }

// printFigures prints the last line of a tier.
func printFigures(w io.Writer, figures map[string]any, r *result) {
	figures["flaky"] = len(r.flakes)
	figures["failed"] = len(r.failures)
	figures["step_seconds"], figures["step_cpu_seconds"] = r.seconds, r.cpu
	for name, f := range r.figures {
		figures[strings.ReplaceAll(name, " ", "_")] = f
	}
	line, err := json.Marshal(figures)
	if err != nil {
		line = fmt.Appendf(nil, `{"error":%q}`, err.Error())
	}
	fmt.Fprintf(w, "\n%s\n", line)
}

// outputTail is how many lines of a failed command are repeated at the end.
const outputTail = 40

// shell returns a step that runs a bash script in the root of the repository, at a low priority. If
// the last line of its output is a JSON object, that becomes the figures of the step.
func shell(name, script string) step { return scriptStep(name, script, lowPriorityCommand) }

// promptShell returns a step like shell that gets the processors before the steps beside it.
func promptShell(name, script string) step { return scriptStep(name, script, command) }

func scriptStep(name, script string, newCommand func(context.Context, string, ...string) *exec.Cmd) step {
	return step{name, func(ctx context.Context, out io.Writer) outcome {
		var text bytes.Buffer
		cmd := newCommand(ctx, "bash", "-euo", "pipefail", "-c", script)
		cmd.Stdout = io.MultiWriter(out, &text)
		cmd.Stderr = cmd.Stdout
		if err := cmd.Run(); err != nil {
			return outcome{cpu: cpuOf(cmd), failures: []failure{{Reason: err.Error(), Output: lastLines(text.String(), outputTail)}}}
		}
		return outcome{cpu: cpuOf(cmd), figures: jsonObject(lastLines(text.String(), 1))}
	}}
}

// cpuOf returns what a command and its children used that it waited for; zero before it has ended.
func cpuOf(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil {
		return 0
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// command returns a command that is interrupted, with all of its children, when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// lowPriorityCommand returns a command that waits for the processors while another one needs them.
func lowPriorityCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	return command(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
}

func jsonObject(line string) json.RawMessage {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) {
		return nil
	}
	return json.RawMessage(line)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func firstLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

// lockedWriter keeps the lines of concurrent steps whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// prefixWriter puts the name of a step before each of its lines.
type prefixWriter struct {
	to     io.Writer
	prefix string

	mu   sync.Mutex // guards rest
	rest []byte     // a line that has not ended
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	var text []byte
	for line := range bytes.Lines(p.rest[:end]) {
		text = append(append(text, p.prefix...), line...)
	}
	p.rest = append(p.rest[:0], p.rest[end:]...)
	_, err := p.to.Write(text)
	return len(b), err
}

// flush ends a line that the step left open.
func (p *prefixWriter) flush() {
	p.mu.Lock()
	open := len(p.rest) > 0
	p.mu.Unlock()
	if open {
		_, _ = p.Write([]byte("\n"))
	}
}

// roundToTenth returns a positive figure with one decimal.
func roundToTenth(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }
