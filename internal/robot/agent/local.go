package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"k8s4r.io/k8s4r/internal/robot/agent/localapi"
	"k8s4r.io/k8s4r/internal/robot/agent/service"
)

// serveLocal serves the socket for people at the robot until ctx ends. If the socket cannot be opened,
// the agent works without.
func (a *Agent) serveLocal(ctx context.Context, parts *sync.WaitGroup) {
	if a.config.LocalSocket == "" {
		return
	}
	server, err := localapi.NewServer(localapi.Config{
		RobotID: a.config.RobotID, Group: a.config.LocalGroup, Tasks: a.runner, State: a.local, Updates: a.updates, LogDir: a.stateDir().LogDir, Log: a.log,
	})
	if err != nil {
		a.log.Warn("the local socket cannot be opened", "error", err)
		return
	}
	if a.config.LocalGroup != defaultLocalGroup && server.LacksGroup() {
		a.log.Warn("this robot has no such localGroup: only root and the agent's user may use the local socket", "group", a.config.LocalGroup)
	}
	listener, err := listenPrivateSocket(ctx, a.config.LocalSocket)
	if err != nil {
		a.log.Warn("the local socket cannot be opened", "error", err)
		return
	}
	parts.Go(func() {
		if err := server.Serve(ctx, listener); err != nil {
			a.log.Warn("the local socket is not served", "error", err)
		}
	})
}

// localCommand is the command line of a subcommand that uses the local socket. It reads no more of the
// agent's configuration than it needs: members of the group may not read all of it.
type localCommand struct {
	*flags
	args []string // without flags
}

func newLocalCommand(name, usage string) *localCommand {
	c := &localCommand{flags: newFlags(name, usage)}
	if f, err := os.Open(service.DefaultConfig); err == nil {
		_ = f.Close()
		c.file = service.DefaultConfig
	}
	return c
}

// parseLocal parses a command line with flags before and after its arguments.
func (c *localCommand) parseLocal(args []string, help io.Writer) error {
	for {
		if err := c.parseFlags(args, help); err != nil {
			return err
		}
		if c.NArg() == 0 {
			break
		}
		c.args, args = append(c.args, c.Arg(0)), c.Args()[1:]
	}
	if err := c.setFromEnv(os.LookupEnv); err != nil {
		return err
	}
	if err := c.setFromFile(); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return c.setPaths()
}

// client returns a client of the agent.
func (c *localCommand) client() localapi.Client { return localapi.Client{Socket: c.config.LocalSocket} }
