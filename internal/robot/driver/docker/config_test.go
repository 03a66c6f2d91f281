package docker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

func TestDocker_CheckNamesField(t *testing.T) {
	tests := []struct {
		name   string
		config *wire.DockerConfig
		want   string
	}{
		{"no config", nil, "config.dockerConfig is missing"},
		{"no image", &wire.DockerConfig{}, "config.dockerConfig.image is empty"},
		{"a relative work directory", &wire.DockerConfig{WorkDir: "here"}, `config.dockerConfig.workDir "here" is not an absolute path`},
		{"a port without a container port", &wire.DockerConfig{Ports: []string{"80:80", "80"}}, `config.dockerConfig.ports[1] "80" is not host:container[/udp]: "" is not a port from 1 to 65535`},
		{"a port without a number", &wire.DockerConfig{Ports: []string{"http:80"}}, `ports[0] "http:80" is not host:container[/udp]: "http" is not a port from 1 to 65535`},
		{"port 0", &wire.DockerConfig{Ports: []string{"0:80"}}, `"0" is not a port from 1 to 65535`},
		{"a port above 65535", &wire.DockerConfig{Ports: []string{"80:65536"}}, `"65536" is not a port from 1 to 65535`},
		{"a port with an address", &wire.DockerConfig{Ports: []string{"127.0.0.1:80:80"}}, `"127.0.0.1" is not a port from 1 to 65535`},
		{"an unknown protocol", &wire.DockerConfig{Ports: []string{"80:80/quic"}}, `protocol "quic" must be tcp, udp or sctp`},
		{"ports in the host network", &wire.DockerConfig{Ports: []string{"80:80"}, NetworkMode: "host"}, `config.dockerConfig.ports has no effect with networkMode "host"`},
		{"a volume without a mount path", &wire.DockerConfig{Volumes: []string{"/data"}}, `config.dockerConfig.volumes[0] "/data" is not host:container[:ro]: it has 1 parts`},
		{"a named volume", &wire.DockerConfig{Volumes: []string{"data:/data"}}, `volumes[0] "data:/data" is not host:container[:ro]: "data" is not an absolute path`},
		{"a relative mount path", &wire.DockerConfig{Volumes: []string{"/data:data"}}, `"data" is not an absolute path below /`},
		{"a volume over the root directory", &wire.DockerConfig{Volumes: []string{"/data:/."}}, `"/." is not an absolute path below /`},
		{"an unknown volume option", &wire.DockerConfig{Volumes: []string{"/data:/data:rx"}}, `"rx" must be ro or rw`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if c := test.config; c != nil && test.want != "config.dockerConfig.image is empty" {
				c.Image = "busybox"
			}
			err := (&Driver{}).Check(wire.TaskConfig{Docker: test.config})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check = %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestHostConfig_ParsesPortsAndVolumes(t *testing.T) {
	h, err := hostConfig(&wire.DockerConfig{
		Image: "x",
		Ports: []string{"8080:80", "8081:80/tcp", "53:5353/udp"}, Volumes: []string{"/dev/shm:/shm", "/etc:/robot/etc:ro"}, NetworkMode: "bridge",
	})
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for inside, outside := range h.PortBindings {
		for _, o := range outside {
			ports = append(ports, fmt.Sprint(inside, " at ", o.HostPort))
		}
	}
	slices.Sort(ports)
	if want := []string{"5353/udp at 53", "80/tcp at 8080", "80/tcp at 8081"}; !slices.Equal(ports, want) {
		t.Errorf("ports %q, want %q", ports, want)
	}
	if m := h.Mounts; len(m) != 2 || m[0].Target != "/shm" || m[0].ReadOnly || m[1].Source != "/etc" || m[1].Target != "/robot/etc" || !m[1].ReadOnly {
		t.Errorf("mounts %+v", h.Mounts)
	}
	if h.NetworkMode != "bridge" {
		t.Errorf("network %q", h.NetworkMode)
	}
}

func TestContainerConfig_DropsDefaultPath(t *testing.T) {
	for path, want := range map[string]int{driver.DefaultPath: 1, "/opt/bin": 2} {
		c, err := containerConfig(driver.Task{Config: wire.TaskConfig{Docker: &wire.DockerConfig{}}, Env: map[string]string{"PATH": path, "A": "b"}}, containerUser{}, "/")
		if err != nil || len(c.Env) != want {
			t.Errorf("with PATH %s the container gets %q, %v", path, c.Env, err)
		}
	}
}
