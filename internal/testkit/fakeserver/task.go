package fakeserver

import "k8s4r.io/k8s4r/internal/protocol/wire"

// NewShellTask returns a raw_exec task that runs a script.
func NewShellTask(uid, script string) wire.Task {
	return NewTask(uid, "raw_exec", "/bin/sh", "-c", script)
}

// NewTask returns a task that runs a command.
func NewTask(uid, driver, command string, args ...string) wire.Task {
	return wire.Task{
		Metadata: wire.TaskMeta{Name: uid, Namespace: "default", UID: uid},
		Spec:     wire.TaskSpec{Name: uid, Driver: driver, Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: command, Args: args}}},
	}
}
