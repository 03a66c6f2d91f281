package v1alpha1

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// The definitions of the older protocol allow other forms of some fields. They are converted when
// an object is read, so that all programs see one form. A value that has no form is kept as its
// JSON text, because an error would keep a controller from reading all other objects of the kind;
// admission and the robots refuse it.

// PortMapping is a port to publish, as host:container or host:container/udp.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:pruning:PreserveUnknownFields
type PortMapping string

// VolumeMount is a directory to mount, as host:container[:ro].
//
// +kubebuilder:validation:Type=""
// +kubebuilder:pruning:PreserveUnknownFields
type VolumeMount string

// textOrList is a text, or a list of texts.
type textOrList []string

// UnmarshalJSON reads both forms.
func (l *textOrList) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) != nil {
		list = []string{scalarText(b)}
	}
	*l = list
	return nil
}

// scalarText returns a text or number, and other values as their JSON text.
func scalarText(b json.RawMessage) string {
	var text string
	if json.Unmarshal(b, &text) != nil {
		return string(b)
	}
	return text
}

// readObject returns the fields of an object, and nil for any other value.
func readObject(b json.RawMessage) (fields map[string]json.RawMessage) {
	if json.Unmarshal(b, &fields) != nil {
		return nil
	}
	return fields
}

// UnmarshalJSON also reads an object with hostPort, containerPort and protocol.
func (p *PortMapping) UnmarshalJSON(b []byte) error {
	o := readObject(b)
	if o == nil {
		*p = PortMapping(scalarText(b))
		return nil
	}
	text := scalarText(o["hostPort"]) + ":" + scalarText(o["containerPort"])
	if protocol := strings.ToLower(scalarText(o["protocol"])); protocol != "" {
		text += "/" + protocol
	}
	*p = PortMapping(text)
	return nil
}

// UnmarshalJSON also reads an object with hostPath, containerPath (or mountPath) and readOnly.
func (v *VolumeMount) UnmarshalJSON(b []byte) error {
	o := readObject(b)
	if o == nil {
		*v = VolumeMount(scalarText(b))
		return nil
	}
	text := scalarText(o["hostPath"]) + ":" + cmp.Or(scalarText(o["containerPath"]), scalarText(o["mountPath"]))
	if scalarText(o["readOnly"]) == "true" {
		text += ":ro"
	}
	*v = VolumeMount(text)
	return nil
}

// UnmarshalJSON also reads a command that is a list.
func (c *DockerConfig) UnmarshalJSON(b []byte) error {
	type plain DockerConfig
	var raw struct {
		plain
		Command textOrList `json:"command"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*c = DockerConfig(raw.plain)
	if len(raw.Command) > 0 {
		c.Command, c.Args = raw.Command[0], slices.Concat(raw.Command[1:], c.Args)
	}
	return nil
}

// UnmarshalJSON also reads a classpath that is a list.
func (c *JavaConfig) UnmarshalJSON(b []byte) error {
	type plain JavaConfig
	var raw struct {
		plain
		Classpath textOrList `json:"classpath"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*c = JavaConfig(raw.plain)
	c.Classpath = strings.Join(raw.Classpath, ":")
	return nil
}

// UnmarshalJSON also reads a container whose command is in execConfig. If both have one, execConfig
// is kept, and refused.
func (c *TaskConfig) UnmarshalJSON(b []byte) error {
	type plain TaskConfig
	var raw plain
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*c = TaskConfig(raw)
	if d := c.DockerConfig; d != nil && c.ExecConfig != nil && d.Command == "" && len(d.Args) == 0 {
		d.Command, d.Args, c.ExecConfig = c.ExecConfig.Command, c.ExecConfig.Args, nil
	}
	return nil
}

// LabeledPort is a port in the spelling of the older protocol.
type LabeledPort struct {
	// Label is the name of the port. Capitals and _ count as small letters and -.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-_A-Za-z0-9]*[A-Za-z0-9])?$`
	Label string `json:"label"`
	// Value is the port number. If 0, the robot chooses a free one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Value int32 `json:"value,omitempty"`
}

// UnmarshalJSON moves reservedPorts and dynamicPorts to ports.
func (n *Network) UnmarshalJSON(b []byte) error {
	type plain Network
	var raw plain
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*n = Network(raw)
	for _, p := range n.ReservedPorts {
		n.Ports = append(n.Ports, NamedPort{Name: p.name(), Port: p.Value})
	}
	for _, p := range n.DynamicPorts {
		n.Ports = append(n.Ports, NamedPort{Name: p.name()})
	}
	n.ReservedPorts, n.DynamicPorts = nil, nil
	return nil
}

func (p LabeledPort) name() string {
	return strings.ReplaceAll(strings.ToLower(p.Label), "_", "-")
}

// UnmarshalJSON also reads an operand in quotes and targets such as ${attr.os}.
func (c *Constraint) UnmarshalJSON(b []byte) error {
	type plain Constraint
	var raw plain
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*c = Constraint(raw)
	c.Operand = strings.Trim(c.Operand, `"`)
	for _, target := range []*string{c.LTarget, c.LTargetLower, c.RTarget, c.RTargetLower} {
		if target != nil {
			if name, is := strings.CutPrefix(*target, "${attr."); is {
				*target = "${robot.attr." + name
			}
		}
	}
	return nil
}

// Service is a service that a task offers. It is accepted for older manifests and registered
// nowhere.
type Service struct {
	// Name of the service.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// PortLabel is the name of its port in resources.networks.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PortLabel string `json:"portLabel,omitempty"`
	// Tags of the service.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	Tags []string `json:"tags,omitempty"`
}
