package driver

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// containerConfig returns what runs in the container. If the task has no work directory, it starts
// in start.
func containerConfig(t Task, user containerUser, start string) (*container.Config, error) {
	c := t.Config.Docker
	env, err := formatEnv(containerEnv(t.Env))
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

// containerLabels returns the labels by which Sweep finds all containers of an attempt.
func containerLabels(a Attempt) map[string]string {
	return map[string]string{labelUID: a.UID, labelAttempt: strconv.Itoa(int(a.Number)), labelRobot: a.Robot}
}

// containerEnv leaves out the robot's default PATH, so that the PATH of the image applies.
func containerEnv(env map[string]string) map[string]string {
	if env["PATH"] != DefaultPath {
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
	if !path.IsAbs(c.WorkDir) && c.WorkDir != "" {
		return nil, fmt.Errorf("config.dockerConfig.workDir %q is not an absolute path", c.WorkDir)
	}
	if len(c.Ports) > 0 && (h.NetworkMode.IsHost() || h.NetworkMode.IsNone() || h.NetworkMode.IsContainer()) {
		return nil, fmt.Errorf("config.dockerConfig.ports has no effect with networkMode %q", c.NetworkMode)
	}
	var err error
	if h.PortBindings, err = portBindings(c.Ports); err != nil {
		return nil, err
	}
	h.Mounts, err = parseVolumes(c.Volumes)
	return h, err
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

// portBindings parses ports of the form host:container[/protocol].
func portBindings(ports []string) (network.PortMap, error) {
	bindings := network.PortMap{}
	for i, p := range ports {
		host, inside, err := parsePort(p)
		if err != nil {
			return nil, fmt.Errorf("config.dockerConfig.ports[%d] %q is not host:container[/udp]: %w", i, p, err)
		}
		bindings[inside] = append(bindings[inside], network.PortBinding{HostPort: host})
	}
	return bindings, nil
}

func parsePort(s string) (host string, inside network.Port, err error) {
	s, protocol, given := strings.Cut(s, "/")
	if !given {
		protocol = "tcp"
	}
	host, container, _ := strings.Cut(s, ":")
	if _, err := portNumber(host); err != nil {
		return "", inside, err
	}
	n, err := portNumber(container)
	if err != nil {
		return "", inside, err
	}
	switch p := network.IPProtocol(protocol); p {
	case network.TCP, network.UDP, network.SCTP:
		inside, _ = network.PortFrom(n, p)
		return host, inside, nil
	}
	return "", inside, fmt.Errorf("protocol %q must be tcp, udp or sctp", protocol)
}

func portNumber(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port", s)
	}
	return uint16(n), nil
}

// parseVolumes parses volumes of the form host:container[:ro].
func parseVolumes(volumes []string) ([]mount.Mount, error) {
	var all []mount.Mount
	for i, v := range volumes {
		m, err := parseVolume(v)
		if err != nil {
			return nil, fmt.Errorf("config.dockerConfig.volumes[%d] %q is not host:container[:ro]: %w", i, v, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parseVolume(s string) (mount.Mount, error) {
	part := strings.Split(s, ":")
	switch {
	case len(part) < 2 || len(part) > 3:
		return mount.Mount{}, fmt.Errorf("it has %d parts", len(part))
	case !path.IsAbs(part[0]):
		// A name would create a named volume, which is never removed.
		return mount.Mount{}, fmt.Errorf("%q is not an absolute path", part[0])
	case !path.IsAbs(part[1]) || path.Clean(part[1]) == "/":
		return mount.Mount{}, fmt.Errorf("%q is not an absolute path below /", part[1])
	case len(part) == 3 && part[2] != "ro" && part[2] != "rw":
		return mount.Mount{}, fmt.Errorf("%q must be ro or rw", part[2])
	}
	m := mount.Mount{Type: mount.TypeBind, Source: part[0], Target: part[1]}
	m.ReadOnly = len(part) == 3 && part[2] == "ro"
	return m, nil
}
