package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

// factsFile is where the agent leaves what is new of the robot. It may be longer
// than what a pipe takes at once.
const factsFile = "facts"

// TellFacts has the shim in dir render its templates again, with what is known of
// the robot now. It fails with unix.ENXIO when there is no shim any more.
func TellFacts(dir string, f wire.RobotFacts) error {
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

// rerender is a rendering that goes on beside the task.
type rerender struct {
	child *driver.Process
	said  *os.File
	again bool // something came meanwhile
}

// renderAgain renders the templates with the robot's new facts.
func (s *shim) renderAgain() {
	switch {
	case s.spec.SetUp == nil || len(s.spec.SetUp.Templates) == 0 || s.cause != "":
		return
	case s.rerender != nil:
		s.rerender.again = true
		return
	}
	b, err := os.ReadFile(filepath.Join(s.spec.Dir, factsFile))
	var facts wire.RobotFacts
	if err == nil {
		err = json.Unmarshal(b, &facts)
	}
	var r rerender
	if err == nil {
		s.spec.SetUp.Data.Labels, s.spec.SetUp.Data.Attrs = facts.Labels, facts.Attrs
		step := setUpStep{what: SetUp{Templates: s.spec.SetUp.Templates, Data: s.spec.SetUp.Data}}
		if !s.engineConfines() { // where it does, the directory is a user's of the image by now
			step.by = s.spec.Confinement
		}
		r.said, r.child, err = s.launchSetUp(step)
	}
	if err != nil {
		s.output.log.Say("templates are not rendered again: "+err.Error(), time.Now())
		return
	}
	s.rerender = &r
}

// rendered takes in that the templates have been rendered again, if they have.
func (s *shim) rendered() {
	r := s.rerender
	if r == nil || !Readable(r.child.Done()) {
		return
	}
	s.rerender = nil
	defer r.said.Close()
	words := firstWords(r.said)
	var changed []int
	if r.child.Reap().Code != 0 || json.Unmarshal([]byte(words), &changed) != nil {
		s.output.log.Say("templates are not rendered again: "+words, time.Now())
	}
	s.follow(changed)
	if r.again {
		s.renderAgain()
	}
}

// follow does what the templates that have changed ask for.
func (s *shim) follow(changed []int) {
	signals := map[syscall.Signal]bool{}
	for _, i := range changed {
		switch t := s.spec.SetUp.Templates[i]; {
		case t.Restart:
			s.stop(wire.ReasonTemplateChanged, s.spec.KillTimeout)
		case t.Signal != 0 && !signals[t.Signal]:
			signals[t.Signal] = true
			s.task.Signal(t.Signal)
		}
	}
}
