package docker

import (
	"cmp"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// containerConfig returns what runs in the container. If the task has no work directory, it starts
// in start.
func containerConfig(t driver.Task, user containerUser, start string) (*container.Config, error) {
	c := t.Config.Docker
	env, err := driver.FormatEnv(containerEnv(t.Env))
	if err != nil {
		return nil, err
	}
	config := &container.Config{
		Image: c.Image, Cmd: c.Args, Env: env, User: user.String(), WorkingDir: cmp.Or(c.WorkDir, start),
		Labels: containerLabels(t.Contained.Attempt),
	}
	if c.Command != "" {
		config.Entrypoint = []string{c.Command}
	}
	return config, nil
}

// containerLabels returns the labels by which Sweep finds all containers of a run.
func containerLabels(a driver.Attempt) map[string]string {
	return map[string]string{
		labelUID: a.UID, labelAttempt: strconv.Itoa(int(a.Number)), labelRun: strconv.FormatInt(a.Run, 10), labelRobot: a.Robot,
	}
}

// containerEnv leaves out the robot's default PATH, so that the PATH of the image applies.
func containerEnv(env map[string]string) map[string]string {
	if env["PATH"] != driver.DefaultPath {
		return env
	}
	own := make(map[string]string, len(env))
	for k, v := range env {
		if k != "PATH" {
			own[k] = v
		}
	}
	return own
}

// droppedCapabilities are those of Docker's default set that a task has no use for: with them it
// could create devices, forge packets and audit records, put capabilities on files, and leave its
// root directory.
var droppedCapabilities = []string{"AUDIT_WRITE", "MKNOD", "NET_RAW", "SETFCAP", "SYS_CHROOT"}

// hostConfig returns what the container may use of the robot. Errors name the field.
func hostConfig(c *wire.DockerConfig) (*container.HostConfig, error) {
	yes := true
	h := &container.HostConfig{
		NetworkMode: container.NetworkMode(c.NetworkMode),
		// The shim keeps the output. The engine's copy would fill the disk.
		LogConfig: container.LogConfig{Type: "none"},
		// PID 1 of a container ignores signals that it has no handler for, so an init process is
		// PID 1 and the task is its child.
		Init:        &yes,
		CapDrop:     droppedCapabilities,
		SecurityOpt: []string{"no-new-privileges"},
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	ports, _ := c.PublishedPorts() // checked
	mounts, _ := c.Mounts()
	h.PortBindings, h.Mounts = portBindings(ports), bindMounts(mounts)
	return h, nil
}

// setLimits sets the limits on a container that package isolation sets on processes.
func setLimits(h *container.HostConfig, l isolation.Limits) {
	const core, oneCore = 1_000_000_000, 1024 // in the units of the engine
	h.NanoCPUs, h.CPUShares = l.CPU*core/1000, l.CPUWeight*oneCore/1000
	h.Memory, h.MemorySwap = l.Memory, l.Memory
	if l.PIDs == 0 {
		l.PIDs = isolation.DefaultPIDs
	}
	h.PidsLimit = &l.PIDs
}

// portBindings returns the ports to publish.
func portBindings(ports []wire.PublishedPort) network.PortMap {
	bindings := network.PortMap{}
	for _, p := range ports {
		inside, _ := network.PortFrom(p.Container, network.IPProtocol(p.Protocol))
		bindings[inside] = append(bindings[inside], network.PortBinding{HostPort: strconv.Itoa(int(p.Host))})
	}
	return bindings
}

func bindMounts(mounts []wire.Mount) (all []mount.Mount) {
	for _, m := range mounts {
		all = append(all, mount.Mount{Type: mount.TypeBind, Source: m.Host, Target: m.Container, ReadOnly: m.ReadOnly})
	}
	return all
}
