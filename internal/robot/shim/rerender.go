package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// attributesFileName is the file with the robot's attributes. They may be too long for the control
// pipe.
const attributesFileName = "facts"

// SendAttributes has the shim in dir render its templates again with the robot's current
// attributes. It returns unix.ENXIO if no shim is running.
func SendAttributes(dir string, f wire.RobotAttributes) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, attributesFileName), b); err != nil {
		return fmt.Errorf("write the robot's attributes for the shim: %w", err)
	}
	return ControlRequest{Render: true}.Send(dir)
}

// rerender is a rendering that runs while the task runs.
type rerender struct {
	child  *driver.Process
	output *os.File
	repeat bool // the attributes changed again meanwhile
}

// startRerender starts to render the templates with the robot's current attributes.
func (s *shim) startRerender() {
	switch {
	case s.spec.SetUp == nil || len(s.spec.SetUp.Templates) == 0 || s.stopReason != "" || s.task == nil && s.spec.Range == nil:
		return
	case s.rerender != nil:
		s.rerender.repeat = true
		return
	}
	b, err := os.ReadFile(filepath.Join(s.spec.Dir, attributesFileName))
	var attributes wire.RobotAttributes
	if err == nil {
		err = json.Unmarshal(b, &attributes)
	}
	var r rerender
	if err == nil {
		step := setUpStep{request: SetUpRequest{Work: s.spec.SetUp.Work, Attributes: &attributes}}
		if !s.usesEngine() { // an engine has changed the owner of the directory to a user of the image
			step.confinement = s.spec.Confinement
		}
		r.output, r.child, err = s.startSetUp(step)
	}
	if err != nil {
		s.output.log.WriteSystemLine("templates were not rendered again: "+err.Error(), time.Now())
		return
	}
	s.rerender = &r
}

// finishRerender handles the result of a rendering that has finished.
func (s *shim) finishRerender() {
	r := s.rerender
	if r == nil || !IsReadable(r.child.Done()) {
		return
	}
	s.rerender = nil
	defer r.output.Close()
	output := readSetUpOutput(r.output)
	var changed []int
	if r.child.Reap().Code != 0 || json.Unmarshal([]byte(output), &changed) != nil {
		s.output.log.WriteSystemLine("templates were not rendered again: "+output, time.Now())
	}
	s.applyChangedTemplates(changed)
	if r.repeat {
		s.startRerender()
	}
}

// awaitRerender waits for a rendering after an index has exited, since the end of an index kills all
// processes of the shim. It does not wait if the range is stopped.
func (s *shim) awaitRerender() {
	for s.rerender != nil && s.indexes.stopReason == "" {
		fds := []unix.PollFd{{Fd: int32(s.rerender.child.Done()), Events: unix.POLLIN}, {Fd: int32(s.control), Events: unix.POLLIN}, {Fd: int32(s.signals.readFD), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, rerenderPoll)
		s.handleRequests()
		s.finishRerender()
		s.enforceDeadlines()
	}
}

// rerenderPoll is the longest pause between two checks of the deadlines while awaitRerender waits, in
// milliseconds.
const rerenderPoll = 100

// applyChangedTemplates restarts or signals the task, as its changed templates require.
func (s *shim) applyChangedTemplates(changed []int) {
	signals := map[syscall.Signal]bool{}
	for _, i := range changed {
		switch t := s.spec.SetUp.Templates[i]; {
		case t.Restart:
			s.stopTask(wire.ReasonTemplateChanged, s.spec.KillTimeout)
		case t.Signal != 0 && !signals[t.Signal]:
			signals[t.Signal] = true
			s.task.Signal(t.Signal)
		}
	}
}
