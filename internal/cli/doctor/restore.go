package doctor

import (
	"context"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/platform/restore"
)

// checkRestore reports that no task is placed because the cluster was restored from a backup.
func checkRestore(ctx context.Context, c Cluster) []Finding {
	const check = "restore"
	h, err := restore.FindHold(ctx, c)
	switch {
	case err != nil:
		return newUnknown(check, err)
	case h.Reason == "":
		return nil
	}
	message := fmt.Sprintf("no task is placed or dispatched (%s): the robots have not reported yet what they ran since the backup of %s", h.Reason, h.BackupAt.UTC().Format(time.RFC3339))
	return newProblem(Warn, check, message, "wait: robots have a minute to connect, and two more to report; if it takes longer, see the log of k8s4r up")
}
