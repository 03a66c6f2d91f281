package up

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/standalone/internal/backup"
	"k8s4r.io/k8s4r/standalone/internal/component"
)

// errNeedsRobots refuses to place tasks without the part that asks the robots.
var errNeedsRobots = errors.New("the data directory was restored from a backup: start once with the manager and the server, which ask the robots what they ran since; remove them from --without")

// openRestore holds back tasks if the data directory was restored, until the robots have reported.
func (s *system) openRestore() error {
	if !s.opts.embedsCluster() {
		return nil // the directory has no objects
	}
	if err := backup.FinishRestore(s.dir.Path); err != nil {
		return err
	}
	state, err := backup.ReadState(s.dir.Path)
	if err != nil || state.Epoch == 0 {
		return err
	}
	s.backupAt = state.BackupAt
	if !state.AwaitsRobots {
		s.restore = restore.OpenGate(state.Epoch)
		return nil
	}
	if !s.opts.includesPart(partManager) || !s.opts.includesPart(partServer) {
		return errNeedsRobots
	}
	s.terminal.Warn("restored from a backup: no task is placed until the robots have reported what they ran since", "backup", state.BackupAt.Format(time.RFC3339))
	s.restore = restore.ClosedGate(state.Epoch, func(epoch int32, found restore.Summary) error {
		state.Epoch, state.AwaitsRobots = epoch, false
		if err := state.Write(s.dir.Path); err != nil {
			return err
		}
		s.logRestore(found)
		return nil
	})
	return nil
}

// newHoldPublisher shows users that the gate is closed, and until when. A backup may contain what an
// earlier process has published.
func newHoldPublisher(cluster *rest.Config, gate *restore.Gate, backupAt time.Time, log *slog.Logger) component.Component {
	return component.NewBackground(func(ctx context.Context) error {
		c, err := newCoreClient(cluster)
		if err != nil {
			return err
		}
		if !gate.IsOpen() {
			publishHold(ctx, c, restore.Hold{Reason: taskstate.ReasonAwaitingJournals, BackupAt: backupAt}, log)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gate.Opened():
		}
		publishHold(ctx, c, restore.Hold{}, log)
		<-ctx.Done()
		return nil
	}, nil)
}

// publishRetry is the time between two attempts to publish.
const publishRetry = time.Second

// publishHold tries until it succeeds or ctx ends.
func publishHold(ctx context.Context, c client.Client, h restore.Hold, log *slog.Logger) {
	for {
		err := restore.PublishHold(ctx, c, h)
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Warn("will try again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(publishRetry):
		}
	}
}

// logRestore shows the user what the robots reported, and which ones did not.
func (s *system) logRestore(found restore.Summary) {
	s.terminal.Warn("the robots have reported what they ran since the backup: tasks are placed again", "robots", found.Reported, "adoptedAttempts", found.Adopted, "unknownTasks", found.Unknown)
	if len(found.Missing) > 0 {
		s.terminal.Warn("robots that are out of contact have not reported; their tasks may run again", "robots", strings.Join(found.Missing, " "))
	}
}
