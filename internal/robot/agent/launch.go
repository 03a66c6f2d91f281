package agent

import (
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"time"

	"k8s4r.io/k8s4r/internal/robot/agent/policyfile"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// launchSlot runs the version of the agent that the robot was updated to, if there is one: it replaces this
// process. It returns false if this program must run, and true with an exit status if this process was asked
// to stop.
func launchSlot(args []string, stderr io.Writer) (status int, isDone bool) {
	c, ok := parseLaunchConfig(args)
	if !ok {
		return 0, false
	}
	store := slots.Open(c.StateDir)
	if _, exists, err := store.Load(); err == nil && !exists {
		return 0, false
	}
	program, err := os.Executable()
	if err != nil {
		return 0, false
	}
	identity, err := slots.IdentifyProgram(program)
	if err != nil {
		return 0, false
	}
	lock, err := lockStateDir(c.StateDir)
	if err != nil {
		return 0, false // this program reports it
	}
	p := &launchProcess{Process: slots.Process{Program: program, Args: args, ParentFD: c.ParentFD}, stateDir: c.StateDir, lock: lock}
	defer func() { _ = p.lock.Close() }()
	l := &slots.Launcher{
		Store: store, Program: identity, Now: time.Now, Log: newLog(c, stderr).With("launcher", program),
		ReadKeys: func() ([]ed25519.PublicKey, error) { return policyfile.ReadUpdateKeys(c.PolicyFile) },
		Clock:    func() slots.Start { return slots.Start{BootID: proc.BootID(), SinceBoot: shim.SinceBoot()} },
		Execute:  p.Execute, Try: p.tryUnlocked,
	}
	return l.Run()
}

// launchProcess is the process of a launcher, which holds the lock of the state directory.
type launchProcess struct {
	slots.Process
	stateDir string
	lock     *os.File // closed by exec
}

// tryUnlocked runs a version on trial, which takes the lock.
func (p *launchProcess) tryUnlocked(slot slots.Slot, path string, remaining time.Duration) slots.TrialEnd {
	_ = p.lock.Close()
	end := p.Try(slot, path, remaining)
	if again, err := lockStateDir(p.stateDir); err == nil {
		p.lock = again
	}
	return end
}

// parseLaunchConfig reads the settings that the launcher needs. It returns false if this program must run, or
// report an invalid command line. Keys of the file that this program does not know are not its business: they
// are for the version that it starts.
func parseLaunchConfig(args []string) (Config, bool) {
	f := newFlags("k8s4r-agent", usage)
	if err := f.parseArgs(args, io.Discard); err != nil || f.version {
		return Config{}, false
	}
	_ = f.setFromEnv(os.LookupEnv)
	_ = f.setFromFile()
	_ = f.setRobotID() // for the log
	return f.config, f.setPaths() == nil
}

// finishAgent returns the exit status of an agent that has ended with err. If another version takes over, this
// process becomes the launcher.
func finishAgent(c Config, args []string, err error) (status int, failure error) {
	switch {
	case err == nil:
		return exitOK, nil
	case !errors.Is(err, errSwitchOver):
		return exitFailed, err
	case c.Launch.OnTrial: // the launcher is the parent
		return exitOK, nil
	}
	launcher := c.Launch.Launcher
	if launcher == "" {
		if launcher, err = os.Executable(); err != nil {
			return exitFailed, err
		}
	}
	return exitFailed, slots.Process{Program: launcher, Args: args, ParentFD: c.ParentFD}.ExecuteLauncher()
}

// recordTrialProblem records why a version on trial cannot start.
func recordTrialProblem(c Config, problem error) {
	if c.Launch.OnTrial {
		_ = slots.Open(c.StateDir).RecordProblem("it cannot start: " + oneLine(problem)) // else the launcher counts its starts
	}
}
