package v1alpha1

// RobotPolicy is what the policy file of a robot allows.
type RobotPolicy struct {
	// Allow holds the rules. A task must meet all of them.
	// +optional
	Allow RobotRules `json:"allow,omitzero"`
	// Problem is why the agent cannot use its policy file. If it is set, nothing is allowed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Problem string `json:"problem,omitempty"`
}

// RobotRules limit the tasks of a robot. A rule that is not set limits nothing; an empty list allows
// nothing of its kind.
type RobotRules struct {
	// Namespaces whose tasks are allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Namespaces []string `json:"namespaces,omitzero"`
	// Drivers that are allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Drivers []string `json:"drivers,omitzero"`
	// Users are accounts of the robot that tasks may name. Tasks that name none are not limited, and
	// containers have users of their own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Users []string `json:"users,omitzero"`
	// Root allows tasks to be root, also in a container.
	// +optional
	Root *bool `json:"root,omitempty"`
	// Commands are the programs of the robot that tasks may run: a path, a directory that ends in a
	// slash, or a name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Commands []string `json:"commands,omitzero"`
	// Images of containers: a repository with or without tag or digest, or a prefix that ends in a
	// slash.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Images []string `json:"images,omitzero"`
	// Mounts are paths of the robot that containers may mount, with everything below them; with :ro
	// at the end only read-only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Mounts []string `json:"mounts,omitzero"`
	// Networks are network modes of containers; default stands for no mode, container for the network
	// of another container.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Networks []string `json:"networks,omitzero"`
	// Devices are devices that tasks may reserve.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Devices []string `json:"devices,omitzero"`
}
