package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// factsFile holds the robot's attributes as the agent last wrote them. They may be too long for
// the control pipe.
const factsFile = "facts"

// TellFacts has the shim in dir render its templates again with the robot's current attributes. It
// returns unix.ENXIO if no shim is running.
func TellFacts(dir string, f wire.RobotAttributes) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, factsFile)
	err = errors.Join(os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
	if err != nil {
		return fmt.Errorf("write down what is new of the robot: %w", err)
	}
	return Order{Render: true}.Send(dir)
}

// rerender is a rendering that runs while the task runs.
type rerender struct {
	child *driver.Process
	said  *os.File
	again bool // the attributes changed again meanwhile
}

// renderAgain renders the templates with the robot's current attributes.
func (s *shim) renderAgain() {
	switch {
	case s.spec.SetUp == nil || len(s.spec.SetUp.Templates) == 0 || s.cause != "":
		return
	case s.rerender != nil:
		s.rerender.again = true
		return
	}
	b, err := os.ReadFile(filepath.Join(s.spec.Dir, factsFile))
	var facts wire.RobotAttributes
	if err == nil {
		err = json.Unmarshal(b, &facts)
	}
	var r rerender
	if err == nil {
		s.spec.SetUp.Data.Labels, s.spec.SetUp.Data.Attrs = facts.Labels, facts.Attrs
		step := setUpStep{what: SetUp{Templates: s.spec.SetUp.Templates, Data: s.spec.SetUp.Data}}
		if !s.engineConfines() { // an engine has given the directory to a user of the image by now
			step.by = s.spec.Confinement
		}
		r.said, r.child, err = s.launchSetUp(step)
	}
	if err != nil {
		s.output.log.WriteSystemLine("templates are not rendered again: "+err.Error(), time.Now())
		return
	}
	s.rerender = &r
}

// takeRendered handles the result of a rendering that has finished.
func (s *shim) takeRendered() {
	r := s.rerender
	if r == nil || !IsReadable(r.child.Done()) {
		return
	}
	s.rerender = nil
	defer r.said.Close()
	words := firstWords(r.said)
	var changed []int
	if r.child.Reap().Code != 0 || json.Unmarshal([]byte(words), &changed) != nil {
		s.output.log.WriteSystemLine("templates are not rendered again: "+words, time.Now())
	}
	s.applyChanged(changed)
	if r.again {
		s.renderAgain()
	}
}

// applyChanged restarts or signals the task, as its changed templates require.
func (s *shim) applyChanged(changed []int) {
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
