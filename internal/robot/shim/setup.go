package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/artifact"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/template"
)

// SetUp is what to put into the task's directory before the task starts.
type SetUp struct {
	Artifacts []artifact.Request `json:"artifacts,omitempty"`
	Templates []Template         `json:"templates,omitempty"`
	Data      template.Data      `json:"data"`
	// Driver prepares Config, with the engine at Engine. If empty, there is nothing to prepare.
	Driver string          `json:"driver,omitempty"`
	Config wire.TaskConfig `json:"config"`
	Engine string          `json:"engine,omitempty"`
}

// Template is a file that is rendered, and what to do if a later rendering changes it.
type Template struct {
	template.Template
	// Restart ends the task, so that the agent restarts it as a new attempt.
	Restart bool `json:"restart,omitempty"`
	// Signal is sent to the task. If zero, none is sent.
	Signal syscall.Signal `json:"signal,omitempty"`
}

// setUpSubcommand is the first argument with which the agent's program sets up a task.
const setUpSubcommand = "set-up"

// setUpFD is the descriptor from which that program reads its SetUp.
const setUpFD = 3

// setUp runs the set-up as the task's user, with the task's view of the robot, in a process of its
// own. So its memory is freed at its end, and it can be stopped like the task.
func (s *shim) setUp() error {
	for _, step := range s.setUpSteps() {
		if err := s.runSetUpStep(step); err != nil || s.stopReason != "" {
			return err
		}
	}
	return nil
}

// setUpStep is a part of the set-up, and the confinement that it runs in.
type setUpStep struct {
	work        SetUp
	confinement isolation.Confinement
}

func (s *shim) runSetUpStep(step setUpStep) error {
	output, child, err := s.startSetUp(step)
	if err != nil {
		return err
	}
	defer output.Close()
	s.task = child
	s.handleEventsUntilExit()
	end := s.task.End()
	if end.Code == 0 {
		return nil
	}
	s.detectShutdown(end)
	return errors.New(readSetUpOutput(output))
}

// startSetUp starts a set-up process, and returns a pipe with its output.
func (s *shim) startSetUp(step setUpStep) (output *os.File, child *driver.Process, err error) {
	work, err := writeMemfd(step.work)
	if err != nil {
		return nil, nil, err
	}
	defer work.Close()
	output, stdout, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer stdout.Close()
	// Not in the task's cgroup: killing what is in there would close the cgroup.
	confinement := step.confinement
	confinement.Cgroup = nil
	child, err = driver.StartProcess(program, []string{"k8s4r-agent", setUpSubcommand}, environment, driver.Task{
		Dir: s.spec.WorkDir, Confinement: confinement, Stdout: stdout, Stderr: stdout, Files: []*os.File{work},
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start the set-up process of the task: %w", err), output.Close())
	}
	return output, child, nil
}

// setUpSteps returns the steps of the set-up in order. Requests to an engine run with the agent's
// own rights. Artifacts never do, since a task could then fetch any file of the robot.
func (s *shim) setUpSteps() (all []setUpStep) {
	if s.usesEngine() {
		all = append(all, setUpStep{work: SetUp{Driver: s.spec.Driver, Config: s.spec.Config, Engine: s.spec.Engine}})
	}
	if s.spec.SetUp != nil {
		all = append(all, setUpStep{*s.spec.SetUp, s.spec.Confinement})
	}
	return all
}

// usesEngine reports whether the driver uses an engine that pulls the task's image and
// isolates the task.
func (s *shim) usesEngine() bool {
	_, ok := s.drivers[s.spec.Driver].(driver.Preparer)
	return ok
}

// maxSetUpOutput bounds the output of a set-up process in bytes, so that it fits into the pipe.
const maxSetUpOutput = 4096

// readSetUpOutput returns the output of a set-up process that has exited.
func readSetUpOutput(f *os.File) string {
	b := make([]byte, maxSetUpOutput)
	n, _ := f.Read(b)
	if text := strings.TrimSpace(string(b[:max(n, 0)])); text != "" {
		return text
	}
	return "the set-up process of the task was killed"
}

// setUpMain runs the set-up that it reads from setUpFD. It writes the changed templates, or the
// error, to standard output. Its exit status is codeTerminated if SIGTERM ended it.
func setUpMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	work, err := readMemfd[SetUp](setUpFD)
	var changed []int
	if err == nil {
		changed, err = work.runSteps(ctx)
	}
	if err != nil {
		message := err.Error()
		fmt.Println(message[:min(len(message), maxSetUpOutput-1)])
		if ctx.Err() != nil {
			return codeTerminated
		}
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(changed)
	return 0
}

// runSteps prepares the driver, fetches the artifacts and renders the templates, in this order. It
// returns the indexes of the templates whose result changed.
func (w SetUp) runSteps(ctx context.Context) (changed []int, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if d, ok := driver.NewBuiltinSet(w.Engine)[w.Driver].(driver.Preparer); ok {
		if err := d.Prepare(ctx, w.Config); err != nil {
			return nil, err
		}
	}
	for _, a := range w.Artifacts {
		if err := artifact.Fetch(ctx, a, artifact.Limits{}, dir); err != nil {
			return nil, err
		}
	}
	for i, t := range w.Templates {
		isChanged, err := template.Render(ctx, t.Template, w.Data, dir)
		if err != nil {
			return nil, err
		}
		if isChanged {
			changed = append(changed, i)
		}
	}
	return changed, nil
}
