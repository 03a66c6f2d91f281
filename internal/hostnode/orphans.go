package hostnode

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// sweepWait bounds the wait for processes to exit after SIGKILL.
const sweepWait = 5 * time.Second

// sweepAttempt kills the processes that are left of a container whose shim was killed.
func (n *Node) sweepAttempt(dir attemptDir, cgroup string, started *shim.Started) error {
	left := supervisor.Leftover{Dir: dir.workDir()}
	if started != nil {
		left.PID, left.StartTicks = started.PID, started.StartTicks
	}
	_, err := supervisor.KillLeftovers([]supervisor.Leftover{left}, sweepWait)
	if group, none := n.host.Cgroup(cgroup); none == nil {
		err = errors.Join(err, group.Kill(sweepWait), group.Remove())
	}
	return err
}

// sweepOrphans stops the containers of pods that were removed while no node was running.
func (n *Node) sweepOrphans(ctx context.Context) {
	known := map[string]bool{}
	all, _ := n.pods.List(everything)
	for _, p := range all {
		known[string(p.UID)] = true
	}
	entries, _ := os.ReadDir(n.podsDir())
	for _, e := range entries {
		if !known[e.Name()] {
			n.clearPod(ctx, types.UID(e.Name()))
		}
	}
	n.sweepCgroups()
}

// sweepCgroups kills what runs in cgroups of pods without a directory.
func (n *Node) sweepCgroups() {
	if n.host.Tree == nil {
		return
	}
	entries, _ := os.ReadDir(n.podsDir())
	swept, err := n.host.Tree.Sweep(func(group string) bool {
		for _, e := range entries {
			if strings.HasPrefix(group, e.Name()+"-") {
				return true
			}
		}
		return false
	}, sweepWait)
	if len(swept) > 0 || err != nil {
		n.log.Warn("control groups of deleted pods were removed", "groups", swept, "error", err)
	}
}

// clearPod kills the processes of a pod and removes its directory. If a process does not exit, the
// directory is kept and clearPod is retried, at the latest by the next node.
func (n *Node) clearPod(ctx context.Context, uid types.UID) {
	err := n.removeOrphan(uid)
	if err == nil {
		return
	}
	n.log.Warn("cannot remove a deleted pod from this node, will try again", "pod", uid, "error", err)
	n.goroutines.Go(func() {
		for n.removeOrphan(uid) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(setUpRetryDelay):
			}
		}
	})
}

func (n *Node) removeOrphan(uid types.UID) error {
	p := n.podPathsFor(uid)
	var errs []error
	for _, dir := range p.listShims() {
		errs = append(errs, n.endRun(uid, dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(string(p))
}

// endRun stops one run of a container. If the shim was killed, endRun kills the processes that the
// shim would have killed.
func (n *Node) endRun(uid types.UID, dir attemptDir) error {
	if err := supervisor.KillTask(dir.shimDir(), sweepWait); err != nil {
		return err
	}
	state, err := shim.ReadState(dir.shimDir())
	if err != nil || state.Exit != nil || !state.MayHaveStarted {
		return err
	}
	return n.sweepAttempt(dir, dir.cgroupName(uid), state.Started)
}
