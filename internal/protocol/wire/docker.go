package wire

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Check returns why no engine can run the container, or nil. Errors name the field.
func (c *DockerConfig) Check() error {
	isolated := c.NetworkMode == "host" || c.NetworkMode == "none" || strings.HasPrefix(c.NetworkMode, "container:")
	switch {
	case c.Image == "":
		return errors.New("config.dockerConfig.image is empty")
	case !path.IsAbs(c.WorkDir) && c.WorkDir != "":
		return fmt.Errorf("config.dockerConfig.workDir %q is not an absolute path", c.WorkDir)
	case len(c.Ports) > 0 && isolated:
		return fmt.Errorf("config.dockerConfig.ports has no effect with networkMode %q", c.NetworkMode)
	}
	if _, err := c.PublishedPorts(); err != nil {
		return err
	}
	_, err := c.Mounts()
	return err
}

// PublishedPort is a port of the robot that leads to a port of a container.
type PublishedPort struct {
	Host, Container uint16
	// Protocol is tcp, udp or sctp.
	Protocol string
}

// PublishedPorts parses ports of the form host:container[/protocol].
func (c *DockerConfig) PublishedPorts() ([]PublishedPort, error) {
	var all []PublishedPort
	for i, s := range c.Ports {
		p, err := parsePort(s)
		if err != nil {
			return nil, fmt.Errorf("config.dockerConfig.ports[%d] %q is not host:container[/udp]: %w", i, s, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePort(s string) (p PublishedPort, err error) {
	s, protocol, given := strings.Cut(s, "/")
	if !given {
		protocol = "tcp"
	}
	host, container, _ := strings.Cut(s, ":")
	if p.Host, err = portNumber(host); err != nil {
		return p, err
	}
	if p.Container, err = portNumber(container); err != nil {
		return p, err
	}
	switch p.Protocol = protocol; protocol {
	case "tcp", "udp", "sctp":
		return p, nil
	}
	return p, fmt.Errorf("protocol %q must be tcp, udp or sctp", protocol)
}

func portNumber(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return uint16(n), nil
}

// Mount is a directory of the robot in a container.
type Mount struct {
	Host, Container string
	ReadOnly        bool
}

// Mounts parses volumes of the form host:container[:ro].
func (c *DockerConfig) Mounts() ([]Mount, error) {
	var all []Mount
	for i, s := range c.Volumes {
		m, err := parseVolume(s)
		if err != nil {
			return nil, fmt.Errorf("config.dockerConfig.volumes[%d] %q is not host:container[:ro]: %w", i, s, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parseVolume(s string) (Mount, error) {
	part := strings.Split(s, ":")
	switch {
	case len(part) < 2 || len(part) > 3:
		return Mount{}, fmt.Errorf("it has %d parts", len(part))
	case !path.IsAbs(part[0]):
		// A name would create a named volume, which is never removed.
		return Mount{}, fmt.Errorf("%q is not an absolute path", part[0])
	case !path.IsAbs(part[1]) || path.Clean(part[1]) == "/":
		return Mount{}, fmt.Errorf("%q is not an absolute path below /", part[1])
	case len(part) == 3 && part[2] != "ro" && part[2] != "rw":
		return Mount{}, fmt.Errorf("%q must be ro or rw", part[2])
	}
	return Mount{Host: part[0], Container: part[1], ReadOnly: len(part) == 3 && part[2] == "ro"}, nil
}

// Check returns why no robot can run the program, or nil. Errors name the field.
func (j *JavaConfig) Check() error {
	switch {
	case j.JarPath == "":
		return errors.New("config.javaConfig.jarPath is empty")
	case j.Classpath != "" && j.Class == "":
		return errors.New("config.javaConfig.class is required with classpath: java ignores the classpath if it runs a jar")
	}
	return nil
}
