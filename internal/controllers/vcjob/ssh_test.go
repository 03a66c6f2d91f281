package vcjob

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
)

func TestPlan_RefusesSSHArguments(t *testing.T) {
	const secret = "-----BEGIN SECRET"
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"a relative path", []string{"--ssh-key-file-path=keys"}, "--ssh-key-file-path must be an absolute path without a colon"},
		{"a path with a colon", []string{"--ssh-key-file-path=/a:b"}, "--ssh-key-file-path must be an absolute path without a colon"},
		{"a large key", []string{"--ssh-private-key=" + strings.Repeat("x", maxKeyBytes+1)}, "a key has more than 16384 bytes"},
		{"only a public key", []string{"--ssh-public-key=k"}, "--ssh-public-key has no effect without --ssh-private-key"},
		{"a private key of another kind, without a public one", []string{"--ssh-private-key", secret}, "--ssh-public-key is required"},
		{"a misspelt name", []string{"--ssh-privat-key=" + secret}, "--ssh-privat-key is not a valid argument"},
		{"a key without a name", []string{secret}, "number 1 is not a valid argument"},
		{"a port that is no number", []string{"--ssh-port", secret}, "number 2 is not a valid argument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := job("Pending", 1)
			useArguments("ssh", c.args...)(j)
			s := Plan(t0, 0, newInput(j)).Status.State
			if s.Phase != batchv1.JobFailed || !strings.HasPrefix(s.Message, "spec.plugins.ssh: "+c.want) {
				t.Errorf("%s: %s", s.Phase, s.Message)
			}
			if strings.Contains(s.Message, "SECRET") {
				t.Error("the message has a value")
			}
		})
	}
}

// A port out of range is 22, as in Volcano.
func TestPlan_SSHPorts(t *testing.T) {
	for port, want := range map[string]string{"2222": "2222", "65535": "65535", "0": "22", "-1": "22", "65536": "22"} {
		j := job("Pending", 1)
		useArguments("ssh", "--ssh-port="+port)(j)
		config := string(Plan(t0, 0, newInput(j)).EnsureObjects[0].(*corev1.Secret).Data["config"])
		if !strings.HasSuffix(config, "  Port "+want+"\n") {
			t.Errorf("port %s: %s", port, config)
		}
	}
}

// settle reconciles until nothing changes any more.
func (b *bench) settle() {
	b.Helper()
	for range 8 {
		b.look()
		b.kubelet(nil)
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) secret() *corev1.Secret {
	b.Helper()
	var secret corev1.Secret
	b.must(b.Get(b.Context(), client.ObjectKey{Namespace: "ns", Name: "j-ssh"}, &secret))
	return &secret
}

// newKeyPairOfTest returns the encoded key of the tests.
func newKeyPairOfTest(t *testing.T) (private, public []byte) {
	t.Helper()
	key, err := keyOfTest()
	if err != nil {
		t.Fatal(err)
	}
	return encodeKeyPair(key)
}

// TestController_SSHSecret follows the Secret through the life of a Job.
func TestController_SSHSecret(t *testing.T) {
	j := job("", 1)
	useArguments("ssh")(j)
	b := newBench(t, 0, false, j)
	b.settle()
	secret := b.secret()
	private, public := newKeyPairOfTest(t)
	for key, want := range map[string]string{
		"id_rsa": string(private), "id_rsa.pub": string(public), "authorized_keys": string(public),
		"config": "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nHost j-a-0\n  HostName j-a-0.j\n  Port 22\nHost j-a-* !*.*\n  HostName %h.j\nHost j-a-*\n  Port 22\n",
	} {
		if got := string(secret.Data[key]); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if b.job().Status.ControlledResources["plugin-ssh"] != "ssh" {
		t.Errorf("controlled %v", b.job().Status.ControlledResources)
	}

	first := secret.ResourceVersion
	j = b.job()
	j.Spec.Tasks[0].Replicas = 2
	b.must(b.Update(t.Context(), j))
	b.start() // without the memory of what exists
	b.settle()
	if secret = b.secret(); secret.ResourceVersion != first {
		t.Errorf("the Secret has changed, which the manager has no right to: %q", secret.Data["config"])
	}

	b.must(b.Create(t.Context(), &busv1.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "stop", UID: "c"}, Action: "TerminateJob",
		TargetObject: metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job")),
	}))
	b.settle()
	if secret = b.secret(); secret.ResourceVersion != first || !metav1.IsControlledBy(secret, j) {
		t.Errorf("the Secret of a Job that is %s: %+v", b.job().Status.State.Phase, secret.ObjectMeta)
	}
}

// The lists of hosts can have a megabyte, and a private key does not belong into the memory.
func TestController_RemembersNoObjects(t *testing.T) {
	j := job("", 500)
	j.Spec.Plugins = map[string][]string{"svc": {"--disable-network-policy"}, "ssh": {"--ssh-private-key=SECRET", "--ssh-public-key=k"}}
	b := newBench(t, 0, false, j)
	b.look()
	b.look()
	b.secret() // it was created
	b.c.updateMemory(b.job(), func(m *memory) {
		if size := len(fmt.Sprintf("%+v", *m)); size > 1000 || m.ensuredObjects == (objectsHash{}) {
			t.Errorf("the memory of a Job has %d characters, the hash is %v", size, m.ensuredObjects)
		}
	})
}

// A user deletes the Secret of an aborted Job, which the controller keeps.
func TestController_CreatesObjectsAgainAfterAbort(t *testing.T) {
	j := job("", 1)
	j.Spec.Plugins = map[string][]string{"ssh": {"--ssh-private-key=SECRET", "--ssh-public-key=k"}}
	b := newBench(t, 0, false, j)
	objects := newBuilder(b.job(), &b.job().Spec).newObjects()
	ensure := func(objects []client.Object) {
		t.Helper()
		if err := b.c.ensureObjects(t.Context(), b.job(), objects); err != nil {
			t.Fatal(err)
		}
	}
	ensure(objects)
	if err := b.c.Delete(t.Context(), b.secret()); err != nil {
		t.Fatal(err)
	}
	ensure(nil) // while it is aborted
	ensure(newBuilder(b.job(), &b.job().Spec).newObjects())
	b.secret() // it exists again
}

// TestEncodeKeyPair_ReadByOpenSSH compares the public key with that of OpenSSH.
func TestEncodeKeyPair_ReadByOpenSSH(t *testing.T) {
	private, public := newKeyPairOfTest(t)
	block, _ := pem.Decode(private)
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err != nil || key.N.BitLen() != 2048 {
		t.Fatal(key, err)
	}
	if derived := derivePublicKey(string(private)); string(derived) != string(public) {
		t.Errorf("derived %s, want %s", derived, public)
	}
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("OpenSSH is not installed")
	}
	file := filepath.Join(t.TempDir(), "id_rsa")
	if err := os.WriteFile(file, private, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "-y", "-f", file).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != strings.TrimSpace(string(public)) {
		t.Errorf("OpenSSH derives %s, want %s: %v", out, public, err)
	}
}

// TestSSHConfig_ReadByOpenSSH has the names of Pods that exist and of one that is added later, short
// and as in MPI_HOST.
func TestSSHConfig_ReadByOpenSSH(t *testing.T) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("OpenSSH is not installed")
	}
	j := pluginJob(map[string]int32{"a": 1, "a-b": 1}, "ssh", "--ssh-port=2222")
	j.Spec.Tasks[1].Template.Spec.Subdomain = "other"
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, Plan(t0, 0, newInput(j)).EnsureObjects[0].(*corev1.Secret).Data["config"], 0o600); err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[string]string{"j-a-0": "j-a-0.j", "j-a-7": "j-a-7.j", "j-a-b-0": "j-a-b-0.other", "j-a-0.j": "j-a-0.j", "j-a-7.j": "j-a-7.j", "j-a-b-0.other": "j-a-b-0.other"} {
		out, err := exec.Command(program, "-G", "-F", file, pod).CombinedOutput()
		if text := "\n" + string(out); err != nil || !strings.Contains(text, "\nhostname "+want+"\n") || !strings.Contains(text, "\nport 2222\n") {
			t.Errorf("%s: %v\n%s", pod, err, out)
		}
	}
}
