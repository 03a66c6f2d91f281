package hostnode

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/shim"
)

// sweepWait bounds the wait for processes that were sent SIGKILL.
const sweepWait = 5 * time.Second

// sweep ends what a container has left behind whose shim was killed.
func (n *Node) sweep(dir attemptDir, cgroup string, started *shim.Started) error {
	left := shims.Leftover{Dir: dir.work()}
	if started != nil {
		left.PID, left.StartTicks = started.PID, started.StartTicks
	}
	_, err := shims.KillLeftovers([]shims.Leftover{left}, sweepWait)
	if group, none := n.host.Cgroup(cgroup); none == nil {
		err = errors.Join(err, group.Kill(sweepWait), group.Remove())
	}
	return err
}

// sweepOrphans ends the containers of pods that were removed while there was no
// node.
func (n *Node) sweepOrphans(ctx context.Context) {
	known := map[string]bool{}
	all, _ := n.pods.List(everything)
	for _, p := range all {
		known[string(p.UID)] = true
	}
	entries, _ := os.ReadDir(n.podsDir())
	for _, e := range entries {
		if !known[e.Name()] {
			n.clear(ctx, types.UID(e.Name()))
		}
	}
	n.sweepCgroups()
}

// sweepCgroups ends what runs in control groups of pods that have no directory any
// more.
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
		n.log.Warn("there were control groups of pods that are no more", "ended", swept, "error", err)
	}
}

// clear ends what is left of a pod and removes its directory. What does not end now is
// tried again, by the next node at the latest: it finds the directory, which is all
// that is known of it.
func (n *Node) clear(ctx context.Context, uid types.UID) {
	err := n.removeOrphan(uid)
	if err == nil {
		return
	}
	n.log.Warn("something is left of a pod that is no more, will try again", "pod", uid, "error", err)
	n.going.Go(func() {
		for n.removeOrphan(uid) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(setOutAgain):
			}
		}
	})
}

func (n *Node) removeOrphan(uid types.UID) error {
	p := n.placesOf(uid)
	var errs []error
	for _, dir := range p.shims() {
		errs = append(errs, n.endRun(uid, dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(string(p))
}

// endRun ends one run of a container, and what it has left behind if its shim was
// killed, which would have ended that.
func (n *Node) endRun(uid types.UID, dir attemptDir) error {
	if err := shims.End(dir.shim(), sweepWait); err != nil {
		return err
	}
	state, err := shim.ReadState(dir.shim())
	if err != nil || state.Exit != nil || !state.Begun {
		return err
	}
	return n.sweep(dir, dir.cgroup(uid), state.Started)
}
