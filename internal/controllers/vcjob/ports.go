package vcjob

import (
	"errors"
	"flag"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// maxPort is the highest number of a port.
const maxPort = 1<<16 - 1

var errNoPort = errors.New("must be a number from 1 to 65535")

// definePort declares an argument that is the number of a port.
func definePort(f *flag.FlagSet, port *int32, name string, number int32) {
	*port = number
	f.Func(name, "=PORT", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPort {
			return errNoPort
		}
		*port = int32(n)
		return nil
	})
}

// addPort adds a port to a container, unless it has one of this number or name.
func addPort(c *corev1.Container, name string, number int32) {
	for i := range c.Ports {
		if c.Ports[i].ContainerPort == number {
			return
		}
	}
	addNamedPort(c, name, number)
}

// addNamedPort adds a port to a container, unless it has one of this name.
func addNamedPort(c *corev1.Container, name string, number int32) {
	for i := range c.Ports {
		if c.Ports[i].Name == name {
			return
		}
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: number})
}
