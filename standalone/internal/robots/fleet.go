// Package robots runs robots on this machine: one agent process each, which is restarted when it
// exits.
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

// AgentName is the file name of the agent.
const AgentName = "k8s4r-agent"

// Config is the configuration of the local robots.
type Config struct {
	// Agent is the path of the agent, from FindAgent.
	Agent string
	// IDs are the ids of the robots.
	IDs []string
	// Connect returns the flags by which agents connect to the cluster. It is called when the
	// robots start, because all ports are known then.
	Connect func(context.Context) ([]string, error)
	// Heartbeat is the heartbeat interval. If 0, the agent's default.
	Heartbeat time.Duration
	// StateDir has a directory for each robot, LogDir a log file.
	StateDir, LogDir string
	// Ready returns nil if the robots, whose agents run, can be given tasks. If nil, they can.
	Ready func(context.Context) error
	// Log receives the exits of agents. It is not the log of the agents themselves.
	Log *slog.Logger
	// Wait blocks for a duration or until the context ends. If nil, it uses the real clock.
	Wait func(context.Context, time.Duration)
}

// Fleet is a component.Component of all local robots.
type Fleet struct {
	cfg  Config
	stop context.CancelFunc // nil before Start
	// parent is the write end of the agents' pipe, which only this process has open. When this
	// process exits, the kernel closes it, and the agents exit, too.
	parent *os.File
	child  *os.File // the agents' end
	robots []*robot
	agents sync.WaitGroup
}

// FindAgent looks for the agent next to the running program, then in PATH.
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
		return "", fmt.Errorf("%s was found neither next to %s nor in PATH; install it there, or use --without robots,node", AgentName, self)
	}
	return path, nil
}

// New returns a fleet that has not been started.
func New(c Config) *Fleet {
	if c.Wait == nil {
		c.Wait = sleepContext
	}
	return &Fleet{cfg: c}
}

// Start implements component.Component. It starts one agent for each robot and restarts it when it
// exits.
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
		f.agents.Go(func() { r.runAgents(life) })
	}
	return nil
}

// Ready implements component.Component.
func (f *Fleet) Ready(ctx context.Context) error {
	for _, r := range f.robots {
		if err := r.checkRunning(); err != nil {
			return fmt.Errorf("%s: %w", r.id, err)
		}
	}
	if f.cfg.Ready == nil {
		return nil
	}
	return f.cfg.Ready(ctx)
}

// Stop implements component.Component. It sends SIGTERM to all agents and kills those that run
// longer than stopTimeout.
func (f *Fleet) Stop(ctx context.Context) error {
	if f.stop == nil {
		return nil
	}
	f.stop()
	ended := make(chan struct{})
	go func() { f.agents.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.stop = nil
	return f.closeFiles()
}

func (f *Fleet) closeFiles() error {
	errs := []error{f.parent.Close(), f.child.Close()}
	for _, r := range f.robots {
		errs = append(errs, r.output.closeOutput())
	}
	return errors.Join(errs...)
}
