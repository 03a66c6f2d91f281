package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/offlineruns"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// measureOfflineRuns returns the time from the reconnection of a robot until a user reads the last of n runs that it
// made without contact. All parts of the control plane are real; the robot has the log shipper of an agent.
func measureOfflineRuns(t testing.TB, n int64) time.Duration {
	up := testkit.StartUp(t, "--without", "robots")
	c := testkit.NewClient(t, up.RESTConfig())
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
	defer cancel()
	tlsConfig, err := testkit.JoinRobot(ctx, c, "offline")
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrobot.Start(ctx, simrobot.Config{
		RobotID: "offline", Broker: up.MQTTSURL, TLS: tlsConfig, RestartsTasks: true, Run: -1, LogDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	job := newServiceJob()
	if err := c.Create(ctx, job); err != nil {
		t.Fatal(err)
	}
	task := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: job.Name + "-main-0-work"}}
	testkit.EventuallyNoError(t, waitTimeout, "the task runs", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(task), task); err != nil {
			return err
		}
		if a := task.Status.FindAttempt(1); a == nil || a.StartedAt == nil {
			return fmt.Errorf("status %+v", task.Status)
		}
		return nil
	})
	took, err := offlineruns.Measure(ctx, r, string(task.UID), 1, n, func(context.Context) (int64, error) { return countRuns(up, task.Name) })
	if err != nil {
		t.Fatal(err)
	}
	return took
}

func newServiceJob() *v1alpha1.Job {
	return &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "offline"},
		Spec: v1alpha1.JobSpec{Type: v1alpha1.JobTypeService, TaskGroups: []v1alpha1.TaskGroupDefinition{{
			Name: "main", TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Tasks: []v1alpha1.TaskDefinition{{
				Name: "work", Driver: v1alpha1.DriverExec, Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/sleep", Args: []string{"infinity"}}},
			}}},
		}}},
	}
}

// countRuns returns the number of the last run of a task that a user can list.
func countRuns(up *testkit.Up, task string) (int64, error) {
	out, err := up.RunProgram("k8s4r", "history", task, "--output", "json")
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	var listed struct {
		Items []struct{ runlog.Page }
	}
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed.Items) != 1 {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return listed.Items[0].RunCount, nil
}
