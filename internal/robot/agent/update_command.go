package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/selfupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
)

const updateUsage = `Usage: k8s4r-agent update --manifest FILE --from FILE|URL [flags]

Updates the agent of this robot to the version of a manifest that k8s4r agent-key sign
has made. The key must be in update.publicKeys of the policy file of the robot. Tasks
keep running. The agent goes back to the version before if the new one has not
connected, registered and had a heartbeat acknowledged within 30s, and exits with 1
then. Root and the agent's user may use it.

`

// The flags of updateCommand.
const (
	manifestFlag = "manifest"
	fromFlag     = "from"
)

// The limits of the wait for the result: longer than all starts of a trial and the way back.
const (
	updateTimeout = 2 * time.Minute
	updatePoll    = 200 * time.Millisecond
)

// updateCommand updates the running agent and waits for the result.
func updateCommand(args []string, stdout, stderr io.Writer) int {
	c := newLocalCommand("k8s4r-agent update", updateUsage)
	path := c.String(manifestFlag, "", "`file` with the manifest of the version")
	from := c.String(fromFlag, "", "`file` or address (http, https) of the program")
	err := c.parseLocal(args, stdout)
	switch {
	case err != nil:
	case len(c.args) > 0:
		err = fmt.Errorf("unexpected argument %q", c.args[0])
	case *path == "" || *from == "":
		err = fmt.Errorf("--%s and --%s are required", manifestFlag, fromFlag)
	}
	var manifest []byte
	if err == nil {
		manifest, err = os.ReadFile(*path)
	}
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	if err := c.updateAgent(context.Background(), stdout, manifest, *from); err != nil {
		return failCommand(stderr, err)
	}
	return exitOK
}

// updateAgent updates the agent and waits until the new version has passed its self-test.
func (c *localCommand) updateAgent(ctx context.Context, stdout io.Writer, manifest []byte, from string) error {
	m, err := agentupdate.Parse(manifest)
	if err != nil {
		return fmt.Errorf("--%s: %w", manifestFlag, err)
	}
	if !strings.Contains(from, "://") {
		if from, err = filepath.Abs(from); err != nil {
			return err
		}
		from = selfupdate.FileSource(from)
	}
	query := &agentQuery{flags: c.flags}
	before, err := query.fetchHealth(ctx)
	if err != nil {
		return err
	}
	answer, err := c.client().Update(ctx, manifest, from)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, answer)
	return awaitUpdate(ctx, stdout, m.Version, before.Update, query.fetchHealth)
}

// errNoResult ends the wait for the result of an update.
var errNoResult = fmt.Errorf("the result of the update is not known after %v: see k8s4r-agent status and the log of the agent", updateTimeout)

// awaitUpdate waits until a version runs for good, or was given up since the state before.
func awaitUpdate(ctx context.Context, stdout io.Writer, version string, before *slots.Status, fetch func(context.Context) (Health, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, updateTimeout, errNoResult)
	defer cancel()
	for {
		h, err := fetch(ctx)
		switch {
		case err != nil: // the agent is being replaced
		case failedSince(h.Update, before):
			return fmt.Errorf("version %s was given up, and the agent is %s again: %s", h.Update.LastFailure.Version, h.Version, h.Update.LastFailure.Reason)
		case h.Version == version && h.Update != nil && h.Update.Phase == slots.Settled:
			fmt.Fprintf(stdout, "the agent is version %s now\n", version)
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(updatePoll):
		}
	}
}

// failedSince reports whether a version was given up after the state before.
func failedSince(now, before *slots.Status) bool {
	if now == nil || now.LastFailure == nil {
		return false
	}
	return before == nil || before.LastFailure == nil || *before.LastFailure != *now.LastFailure
}
