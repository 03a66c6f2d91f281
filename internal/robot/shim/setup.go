package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// SetUp is what to put into the task's directory before the task starts. Package setup makes it, and
// does it in a process of the agent's program.
type SetUp struct {
	// Work is the artifacts and the templates, as package setup has encoded them.
	Work json.RawMessage `json:"work,omitempty"`
	// Templates has what to do with the task after a change of each of the templates.
	Templates []TemplateChange `json:"templates,omitempty"`
	// Cached are the paths of files that may have the content of the artifacts, by the index of the
	// artifact. If empty, the artifact has none.
	Cached []string `json:"cached,omitempty"`
}

// TemplateChange is what to do if a later rendering changes a template.
type TemplateChange struct {
	// Restart ends the task, so that it is started again.
	Restart bool `json:"restart,omitempty"`
	// Signal is sent to the task. If zero, none is sent.
	Signal syscall.Signal `json:"signal,omitempty"`
}

// SetUpSubcommand is the first argument with which the agent's program sets up a task.
const SetUpSubcommand = "set-up"

// SetUpRequest is a step of the set-up, as its process receives it.
type SetUpRequest struct {
	// Driver prepares Config, with the engine at Engine. If empty, there is nothing to prepare.
	Driver string          `json:"driver,omitempty"`
	Config wire.TaskConfig `json:"config"`
	Engine string          `json:"engine,omitempty"`
	// Work is SetUp.Work. If nil, there is nothing to put into the task's directory.
	Work json.RawMessage `json:"work,omitempty"`
	// Attributes are the current attributes of the robot. If set, only the templates are rendered.
	Attributes *wire.RobotAttributes `json:"attributes,omitempty"`
	// Cached are the indexes of the artifacts whose content the descriptors from cachedFD on may have, in
	// the same order.
	Cached []int `json:"cached,omitempty"`
}

// The descriptors of the process: its SetUpRequest, and the first of the files with cached artifacts. The
// process cannot open these by their paths, which its user must not see.
const (
	setUpFD  = 3
	cachedFD = 4
)

// ReceiveSetUpRequest returns the request of this process.
func ReceiveSetUpRequest() (r SetUpRequest, err error) {
	message, err := readMemfd(setUpFD)
	if err == nil {
		err = json.Unmarshal(message, &r)
	}
	return r, err
}

// CachedFiles returns the inherited files with cached artifacts, by the index of the artifact.
func (r SetUpRequest) CachedFiles() map[int]*os.File {
	files := map[int]*os.File{}
	for i, index := range r.Cached {
		files[index] = os.NewFile(uintptr(cachedFD+i), "cached artifact")
	}
	return files
}

// setUp runs the set-up as the task's user, with the task's view of the robot, in a process of its
// own. So its memory is freed at its end, and it can be stopped like the task.
func (s *shim) setUp() error {
	steps := s.setUpSteps()
	if len(steps) == 0 {
		return nil
	}
	if err := s.recordShim(false); err != nil { // a restarted agent looks for it meanwhile
		return err
	}
	for _, step := range steps {
		if err := s.runSetUpStep(step); err != nil || s.stopReason != "" {
			return err
		}
	}
	return nil
}

// setUpStep is a part of the set-up, and the confinement that it runs in.
type setUpStep struct {
	request     SetUpRequest
	confinement isolation.Confinement
	// cached are the paths of SetUp.Cached.
	cached []string
}

// openCached opens the cached files that exist, and enters them into the request.
func (s *setUpStep) openCached() (files []*os.File) {
	for i, path := range s.cached {
		if path == "" {
			continue
		}
		if f, err := os.Open(path); err == nil { // if not, the artifact is downloaded
			files, s.request.Cached = append(files, f), append(s.request.Cached, i)
		}
	}
	return files
}

func (s *shim) runSetUpStep(step setUpStep) error {
	output, child, err := s.startSetUp(step)
	if err != nil {
		return err
	}
	defer output.Close()
	s.task = child
	s.handleEventsUntilExit()
	end := s.endTask()
	if end.Code == 0 {
		return nil
	}
	s.detectShutdown(end)
	return errors.New(readSetUpOutput(output))
}

// startSetUp starts a set-up process, and returns a pipe with its output.
func (s *shim) startSetUp(step setUpStep) (output *os.File, child *driver.Process, err error) {
	cached := step.openCached()
	defer closeFiles(cached)
	message, err := json.Marshal(step.request)
	if err != nil {
		return nil, nil, err
	}
	request, err := writeMemfd(message)
	if err != nil {
		return nil, nil, err
	}
	defer request.Close()
	output, stdout, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer stdout.Close()
	// Not in the task's cgroup: killing what is in there would close the cgroup.
	confinement := step.confinement
	confinement.Cgroup = nil
	child, err = driver.StartProcess(s.agentProgram, []string{"k8s4r-agent", SetUpSubcommand}, environment, driver.Task{
		Dir: s.spec.WorkDir, Confinement: confinement, Stdout: stdout, Stderr: stdout, Files: append([]*os.File{request}, cached...), TimerSlack: s.spec.TimerSlack,
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start the set-up process of the task: %w", err), output.Close())
	}
	return output, child, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// setUpSteps returns the steps of the set-up in order. Requests to an engine run with the agent's
// own rights. Artifacts never do, since a task could then fetch any file of the robot.
func (s *shim) setUpSteps() (all []setUpStep) {
	if s.usesEngine() {
		all = append(all, setUpStep{request: SetUpRequest{Driver: s.spec.Driver, Config: s.spec.Config, Engine: s.spec.Engine}})
	}
	if s.spec.SetUp != nil {
		all = append(all, setUpStep{SetUpRequest{Work: s.spec.SetUp.Work}, s.spec.Confinement, s.spec.SetUp.Cached})
	}
	return all
}

// usesEngine reports whether the driver uses an engine that pulls the task's image and
// isolates the task.
func (s *shim) usesEngine() bool {
	_, ok := s.drivers[s.spec.Driver].(driver.Preparer)
	return ok
}

// MaxSetUpOutput bounds the output of a set-up process in bytes, so that it fits into the pipe.
const MaxSetUpOutput = 4096

// readSetUpOutput returns the output of a set-up process that has exited.
func readSetUpOutput(f *os.File) string {
	b := make([]byte, MaxSetUpOutput)
	n, _ := f.Read(b)
	if text := strings.TrimSpace(string(b[:max(n, 0)])); text != "" {
		return text
	}
	return "the set-up process of the task was killed"
}
