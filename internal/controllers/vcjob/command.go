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

// Order is what a Command asks for.
type Order struct {
	// Name of the Command, which is gone.
	Name    string
	Action  batchv1.Action
	Message string
}

// The reasons of the events about Commands.
const (
	ReasonCommandIssued  = "CommandIssued"
	ReasonCommandRefused = "CommandRefused"
)

// takeOrder makes the oldest Command for the Job its order. The Command is
// deleted first, and only who deleted it carries it out: so no restart and no
// stale cache does it twice.
func (c *Controller) takeOrder(ctx context.Context, j *batchv1.Job) error {
	var busy bool
	c.remember(j, func(m *memory) { busy = m.order != nil })
	if busy || j.DeletionTimestamp != nil || j.Status.State.Phase == "" {
		return nil // the first look at a Job obeys nobody: a Command taken then would be lost
	}
	commands, err := c.commands(ctx, client.ObjectKeyFromObject(j))
	if err != nil {
		return err
	}
	for i := range commands {
		cmd := &commands[i]
		mine, err := c.remove(ctx, cmd)
		if err != nil {
			return err
		}
		if uid := cmd.TargetObject.UID; !mine || uid != "" && uid != j.UID {
			continue // taken already, or for an earlier Job of this name
		}
		c.Recorder.Eventf(j, cmd, corev1.EventTypeNormal, ReasonCommandIssued, "Command", "Command %s asks for %.100s. %s", cmd.Name, cmd.Action, cmd.Message)
		c.remember(j, func(m *memory) {
			m.order = &Order{Name: cmd.Name, Action: batchv1.Action(cmd.Action), Message: cmd.Message}
		})
		return nil
	}
	return nil
}

// remove deletes a Command as it was seen, and tells whether it was us.
func (c *Controller) remove(ctx context.Context, cmd *busv1.Command) (bool, error) {
	err := c.Delete(ctx, cmd, client.Preconditions{UID: &cmd.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete command %s: %w", cmd.Name, err)
	}
	return true, nil
}

// commands for a Job, the oldest first.
func (c *Controller) commands(ctx context.Context, k types.NamespacedName) ([]busv1.Command, error) {
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

// dropCommands deletes the Commands for a Job that does not exist. One that the
// cache only does not show yet keeps them.
func (c *Controller) dropCommands(ctx context.Context, k types.NamespacedName) error {
	commands, err := c.commands(ctx, k)
	if err != nil || len(commands) == 0 {
		return err
	}
	if err := c.Live.Get(ctx, k, &batchv1.Job{}); !apierrors.IsNotFound(err) {
		return err
	}
	for i := range commands {
		if _, err := c.remove(ctx, &commands[i]); err != nil {
			return err
		}
	}
	return nil
}
