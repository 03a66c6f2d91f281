// Package robots runs robots on this machine: one agent process each, started
// again when it ends.
package robots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// AgentName is the file name of the agent's program.
const AgentName = "k8s4r-agent"

// Config says which robots to run.
type Config struct {
	// Agent is the agent's program, as from FindAgent.
	Agent string
	// IDs name the robots.
	IDs []string
	// Connect are the flags by which agents find the cluster. It is asked when the
	// robots start, for then everything has its port.
	Connect func(context.Context) ([]string, error)
	// Heartbeat is the time between two of each robot. Zero: what its agent does
	// by itself.
	Heartbeat time.Duration
	// StateDir holds a directory for each robot, LogDir a log file.
	StateDir, LogDir string
	// Ready says whether the robots, whose agents run, can be given work; nil:
	// they can.
	Ready func(context.Context) error
	// Log hears of agents that end. It is not the agents' own log.
	Log *slog.Logger
	// Wait pauses between two starts of an agent, less long when the context
	// ends; nil: by the clock.
	Wait func(context.Context, time.Duration)
}

// Fleet is a component.Component of all local robots.
type Fleet struct {
	cfg  Config
	stop context.CancelFunc // nil: not started
	// parent is the end of the agents' pipe that only this process has. The
	// kernel closes it when this process ends, however that happens, and so
	// tells the agents.
	parent *os.File
	child  *os.File // the agents' end
	robots []*robot
	ended  sync.WaitGroup
}

// FindAgent looks for the agent's program next to the running one, then in PATH.
func FindAgent() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), AgentName)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(AgentName)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside %s nor in PATH; put it there, or use --without robots,node", AgentName, self)
	}
	return path, nil
}

// New returns a fleet that does not run yet.
func New(c Config) *Fleet {
	if c.Wait == nil {
		c.Wait = wait
	}
	return &Fleet{cfg: c}
}

// Start implements component.Component: it starts one agent for each robot and
// a watch over it.
func (f *Fleet) Start(ctx context.Context) error {
	child, parent, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	f.child, f.parent = child, parent
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	flags, err := f.cfg.Connect(ctx)
	if err != nil {
		return err
	}
	for _, id := range f.cfg.IDs {
		r, err := newRobot(f.cfg, id, flags, child)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		f.robots = append(f.robots, r)
		f.ended.Go(func() { r.supervise(life) })
	}
	return nil
}

// Ready implements component.Component.
func (f *Fleet) Ready(ctx context.Context) error {
	for _, r := range f.robots {
		if err := r.running(); err != nil {
			return fmt.Errorf("%s: %w", r.id, err)
		}
	}
	if f.cfg.Ready == nil {
		return nil
	}
	return f.cfg.Ready(ctx)
}

// Stop implements component.Component: it asks all agents at once to end, and
// kills those that have not within killAfter.
func (f *Fleet) Stop(ctx context.Context) error {
	if f.stop == nil {
		return nil
	}
	f.stop()
	ended := make(chan struct{})
	go func() { f.ended.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.stop = nil
	return f.close()
}

func (f *Fleet) close() error {
	errs := []error{f.parent.Close(), f.child.Close()}
	for _, r := range f.robots {
		errs = append(errs, r.output.close())
	}
	return errors.Join(errs...)
}
