package up

import (
	"errors"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/standalone/internal/backup"
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

// logRestore shows the user what the robots reported, and which ones did not.
func (s *system) logRestore(found restore.Summary) {
	s.terminal.Warn("the robots have reported what they ran since the backup: tasks are placed again", "robots", found.Reported, "adoptedAttempts", found.Adopted, "unknownTasks", found.Unknown)
	if len(found.Missing) > 0 {
		s.terminal.Warn("robots that are out of contact have not reported; their tasks may run again", "robots", strings.Join(found.Missing, " "))
	}
}
