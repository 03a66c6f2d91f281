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

	"k8s4r.io/k8s4r/internal/artifact"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/render"
	"k8s4r.io/k8s4r/internal/wire"
)

// SetUp is what is put into the task's directory before it starts.
type SetUp struct {
	Artifacts []artifact.Request `json:"artifacts,omitempty"`
	Templates []Template         `json:"templates,omitempty"`
	Data      render.Data        `json:"data"`
	// Driver prepares Config, at Engine. Empty: there is nothing to prepare.
	Driver string          `json:"driver,omitempty"`
	Config wire.TaskConfig `json:"config"`
	Engine string          `json:"engine,omitempty"`
}

// Template is a file that is rendered, and what follows when it is rendered again
// with another result.
type Template struct {
	render.Template
	// Restart ends the task, to be run again as another attempt.
	Restart bool `json:"restart,omitempty"`
	// Signal is sent to the task. Zero: none.
	Signal syscall.Signal `json:"signal,omitempty"`
}

// setUpWord is the first argument of the program that sets a task up.
const setUpWord = "set-up"

// setUpFD is where that program reads what to do.
const setUpFD = 3

// setUp runs what sets the task up, as the task's user and with its view of the
// robot, and as a process of its own: its memory is gone with it, and it can be
// stopped like the task.
func (s *shim) setUp() error {
	for _, step := range s.steps() {
		if err := s.setUpBy(step); err != nil || s.cause != "" {
			return err
		}
	}
	return nil
}

// setUpStep is a part of setting up, and what bounds it.
type setUpStep struct {
	what SetUp
	by   isolation.Confinement
}

func (s *shim) setUpBy(step setUpStep) error {
	said, child, err := s.launchSetUp(step)
	if err != nil {
		return err
	}
	defer said.Close()
	s.task = child
	s.attend()
	if s.task.End().Code == 0 {
		return nil
	}
	return errors.New(firstWords(said))
}

// launchSetUp starts what sets the task up. What it says is in a pipe.
func (s *shim) launchSetUp(step setUpStep) (said *os.File, child *driver.Process, err error) {
	work, err := inMemory(step.what)
	if err != nil {
		return nil, nil, err
	}
	defer work.Close()
	said, sentence, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer sentence.Close()
	// Not in the task's control group: who ends what is in there closes it.
	confinement := step.by
	confinement.Cgroup = nil
	child, err = driver.Fork(program, []string{"k8s4r-agent", setUpWord}, environment, driver.Task{
		Dir: s.spec.WorkDir, Confinement: confinement, Stdout: sentence, Stderr: sentence, Files: []*os.File{work},
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start what sets the task up: %w", err), said.Close())
	}
	return said, child, nil
}

// steps are what there is to set up, in order. What an engine is asked takes the
// agent's own rights; no artifact does, or a task could fetch any file of the robot.
func (s *shim) steps() (all []setUpStep) {
	if s.engineConfines() {
		all = append(all, setUpStep{what: SetUp{Driver: s.spec.Driver, Config: s.spec.Config, Engine: s.spec.Engine}})
	}
	if s.spec.SetUp != nil {
		all = append(all, setUpStep{*s.spec.SetUp, s.spec.Confinement})
	}
	return all
}

// engineConfines tells whether the driver has an engine that fetches what the task
// needs and confines it.
func (s *shim) engineConfines() bool {
	_, fetches := s.drivers[s.spec.Driver].(driver.Preparer)
	return fetches
}

// maxSentence bounds what set-up says, below what a pipe takes without a reader.
const maxSentence = 4096

// firstWords reads a sentence from a pipe that has no writer any more.
func firstWords(f *os.File) string {
	b := make([]byte, maxSentence)
	n, _ := f.Read(b)
	if text := strings.TrimSpace(string(b[:max(n, 0)])); text != "" {
		return text
	}
	return "what sets the task up was killed"
}

// setUpMain is the program that sets a task up. It says what went wrong on its
// standard output.
func setUpMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	work, err := fromMemory[SetUp](setUpFD)
	var changed []int
	if err == nil {
		changed, err = work.do(ctx)
	}
	if err != nil {
		sentence := err.Error()
		fmt.Println(sentence[:min(len(sentence), maxSentence-1)])
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(changed)
	return 0
}

// do prepares the driver, fetches the artifacts and renders the templates, in their
// order. It returns which templates have another result than before.
func (w SetUp) do(ctx context.Context) (changed []int, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if d, ok := driver.Builtin(w.Engine)[w.Driver].(driver.Preparer); ok {
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
		news, err := render.Render(ctx, t.Template, w.Data, dir)
		if err != nil {
			return nil, err
		}
		if news {
			changed = append(changed, i)
		}
	}
	return changed, nil
}
