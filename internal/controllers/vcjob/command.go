package vcjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
)

// PendingCommand is a Command that was taken and not executed yet.
type PendingCommand struct {
	// Name of the Command, which was deleted.
	Name    string
	Action  batchv1.Action
	Message string
}

// Reasons of events about Commands and policies.
const (
	ReasonExecuteAction  = "ExecuteAction"
	ReasonCommandIssued  = "CommandIssued"
	ReasonCommandRefused = "CommandRefused"
)

// takeCommand takes the oldest Command for the Job. It deletes the Command first and
// executes it only if that succeeds, so that neither a restart nor a stale cache executes
// it twice.
func (c *Controller) takeCommand(ctx context.Context, j *batchv1.Job) error {
	var busy bool
	c.updateMemory(j, func(m *memory) { busy = m.command != nil })
	if busy || j.DeletionTimestamp != nil || j.Status.State.Phase == "" {
		return nil // the first reconcile only sets the phase; a Command taken now would be lost
	}
	commands, err := c.listCommands(ctx, client.ObjectKeyFromObject(j))
	if err != nil {
		return err
	}
	for i := range commands {
		cmd := &commands[i]
		deleted, err := c.deleteCommand(ctx, cmd)
		if err != nil {
			return err
		}
		if uid := cmd.TargetObject.UID; !deleted || uid != "" && uid != j.UID {
			continue // taken before, or for an earlier Job of this name
		}
		c.Recorder.Eventf(j, cmd, corev1.EventTypeNormal, ReasonCommandIssued, "Command", "Command %s requests %.100s. %s", cmd.Name, cmd.Action, cmd.Message)
		c.updateMemory(j, func(m *memory) {
			m.command = &PendingCommand{Name: cmd.Name, Action: batchv1.Action(cmd.Action), Message: cmd.Message}
		})
		return nil
	}
	return nil
}

// deleteCommand deletes a Command and reports whether it still existed.
func (c *Controller) deleteCommand(ctx context.Context, cmd *busv1.Command) (bool, error) {
	err := c.Delete(ctx, cmd, client.Preconditions{UID: &cmd.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete command %s: %w", cmd.Name, err)
	}
	return true, nil
}

// listCommands returns the Commands for a Job, oldest first.
func (c *Controller) listCommands(ctx context.Context, k types.NamespacedName) ([]busv1.Command, error) {
	var list busv1.CommandList
	if err := c.List(ctx, &list, client.InNamespace(k.Namespace), client.MatchingFields{indexCommands: k.Name}); err != nil {
		return nil, fmt.Errorf("list commands: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b busv1.Command) int {
		if d := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list.Items, nil
}

// deleteCommands deletes the Commands for a Job that does not exist, unless only the cache
// does not show it yet.
func (c *Controller) deleteCommands(ctx context.Context, k types.NamespacedName) error {
	commands, err := c.listCommands(ctx, k)
	if err != nil || len(commands) == 0 {
		return err
	}
	if err := c.Live.Get(ctx, k, &batchv1.Job{}); !apierrors.IsNotFound(err) {
		return err
	}
	for i := range commands {
		if _, err := c.deleteCommand(ctx, &commands[i]); err != nil {
			return err
		}
	}
	return nil
}
