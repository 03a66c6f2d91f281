package cli

import "github.com/spf13/cobra"

func jobCommand(d *deps) *cobra.Command {
	return nounCommand("job", "Pause, resume, cancel, requeue or prioritize Jobs, and show and restore their revisions",
		pauseCommand(d), resumeCommand(d), cancelCommand(d), requeueJobCommand(d), priorityCommand(d),
		jobHistoryCommand(d), jobDiffCommand(d), rollbackCommand(d))
}

func taskCommand(d *deps) *cobra.Command {
	return nounCommand("task", "Requeue tasks", requeueTaskCommand(d))
}

func robotCommand(d *deps) *cobra.Command {
	return nounCommand("robot", "Approve, revoke, cordon, drain or requeue robots",
		approveCommand(d), revokeCommand(d), cordonCommand(d), drainCommand(d), uncordonCommand(d), unlockCommand(d), requeueRobotCommand(d))
}

// bareNames removes the kind from each reference.
func bareNames(k kind, refs []string) ([]string, error) {
	names := make([]string, 0, len(refs))
	for _, ref := range refs {
		name, err := k.bareName(ref)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}
