package fakeserver

import "k8s4r.io/k8s4r/internal/wire"

// Shell is a task that runs a script and may do what the agent may.
func Shell(uid, script string) wire.Task {
	return Task(uid, "raw_exec", "/bin/sh", "-c", script)
}

// Task is one that runs a command.
func Task(uid, driver, command string, args ...string) wire.Task {
	return wire.Task{
		Metadata: wire.TaskMeta{Name: uid, Namespace: "default", UID: uid},
		Spec:     wire.TaskSpec{Name: uid, Driver: driver, Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: command, Args: args}}},
	}
}
