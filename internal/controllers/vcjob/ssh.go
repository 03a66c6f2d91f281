package vcjob

import (
	"flag"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// pluginSSH gives the Pods of a Job a common key pair and a configuration of ssh, so that each can
// log in to the others by their names.
const pluginSSH = "ssh"

const (
	defaultSSHPath = "/root/.ssh"
	defaultSSHPort = 22
	// maxKeyBytes bounds a key that is an argument. An RSA key of 16384 bits has 12 KiB.
	maxKeyBytes = 16 << 10
)

// The keys of the Secret, which are the names of the files.
const (
	sshPrivateKey     = "id_rsa"
	sshPublicKey      = "id_rsa.pub"
	sshAuthorizedKeys = "authorized_keys"
	sshConfig         = "config"
)

// sshOptions are the arguments of the plugin.
type sshOptions struct {
	path, privateKey, publicKey string
	port                        int
}

func defineSSH(f *flag.FlagSet) effects {
	var o sshOptions
	f.StringVar(&o.path, "ssh-key-file-path", defaultSSHPath, "=PATH")
	f.StringVar(&o.privateKey, "ssh-private-key", "", "=KEY")
	f.StringVar(&o.publicKey, "ssh-public-key", "", "=KEY")
	f.IntVar(&o.port, "ssh-port", defaultSSHPort, "=PORT")
	return effects{validate: o.validateOptions, objects: o.newObjects, changePod: o.mountKeys}
}

// validateOptions returns messages without the values of keys.
func (o *sshOptions) validateOptions(b *builder) string {
	switch {
	case !path.IsAbs(o.path) || strings.Contains(o.path, ":"):
		return "--ssh-key-file-path must be an absolute path without a colon, such as " + defaultSSHPath
	case len(o.privateKey) > maxKeyBytes || len(o.publicKey) > maxKeyBytes:
		return fmt.Sprintf("a key has more than %d bytes; use a smaller one, or omit both: then a pair is generated", maxKeyBytes)
	case o.privateKey == "" && o.publicKey != "":
		return "--ssh-public-key has no effect without --ssh-private-key; set both, or omit both: then a pair is generated"
	case o.privateKey != "" && o.publicKey == "" && derivePublicKey(o.privateKey) == nil:
		return "--ssh-public-key is required, because it cannot be derived from --ssh-private-key, which is no RSA key in PEM format"
	case len(o.newConfig(b)) > maxHostsBytes-3*maxKeyBytes:
		return "the list of hosts is longer than a Secret can be, 1 MiB; use fewer replicas, or omit the plugin"
	}
	return ""
}

func sshName(j *batchv1.Job) string { return naming.ChildName(naming.MaxName, j.Name, "ssh") }

// newObjects returns the Secret with keys and configuration. Keys that are not given are generated
// when the Secret is created.
func (o *sshOptions) newObjects(b *builder) []client.Object {
	data := map[string][]byte{sshConfig: o.newConfig(b)}
	if o.privateKey != "" {
		public := []byte(o.publicKey)
		if o.publicKey == "" {
			public = derivePublicKey(o.privateKey)
		}
		maps.Copy(data, newKeyData([]byte(o.privateKey), public))
	}
	return []client.Object{&corev1.Secret{ObjectMeta: ownedMeta(b.job, sshName(b.job)), Data: data}}
}

// newKeyData returns the data of a key pair that is also authorized to log in.
func newKeyData(private, public []byte) map[string][]byte {
	return map[string][]byte{sshPrivateKey: private, sshPublicKey: public, sshAuthorizedKeys: slices.Clone(public)}
}

// newConfig returns the configuration of ssh. The keys of hosts are not checked, because they change
// with each Pod. Patterns at its end match replicas that are added later, because the Secret is never
// changed, and names with the subdomain, such as those of MPI_HOST.
func (o *sshOptions) newConfig(b *builder) []byte {
	port := o.port
	if port < 1 || port > maxPort {
		port = defaultSSHPort
	}
	var text strings.Builder
	text.WriteString("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
	for i := range b.spec.Tasks {
		t := &b.spec.Tasks[i]
		for index, host := range b.hosts[t.Name] {
			fmt.Fprintf(&text, "Host %s\n  HostName %s\n  Port %d\n", b.shortHostName(t, index), host, port)
		}
	}
	for i := range b.spec.Tasks {
		if t := &b.spec.Tasks[i]; t.Template.Spec.Hostname == "" {
			pods := strings.TrimSuffix(podName(b.job.Name, t.Name, 0), "0") + "*"
			fmt.Fprintf(&text, "Host %s !*.*\n  HostName %%h.%s\nHost %s\n  Port %d\n", pods, b.subdomain(t), pods, port)
		}
	}
	return []byte(text.String())
}

// mountKeys mounts the files into all containers.
func (o *sshOptions) mountKeys(b *builder, _ replica, pod *corev1.Pod) {
	const dir = ".ssh"
	mode := int32(0o600)
	if o.path != defaultSSHPath {
		mode = 0o644 // for users other than root
	}
	source := &corev1.SecretVolumeSource{SecretName: sshName(b.job), DefaultMode: &mode}
	for _, file := range []string{sshPrivateKey, sshPublicKey, sshAuthorizedKeys, sshConfig} {
		source.Items = append(source.Items, corev1.KeyToPath{Key: file, Path: dir + "/" + file})
	}
	name := newVolumeName(b.job, "ssh")
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: source}})
	eachContainer(pod, func(c *corev1.Container) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: o.path, SubPath: dir})
	})
}
