package hostnode

import (
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestVCJob_PodsReachEachOtherBySSH runs a program like one of MPI: the master distributes a sum to
// the workers with Debian's OpenSSH.
func TestVCJob_PodsReachEachOtherBySSH(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	for _, program := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: hack/deps node installs OpenSSH", err)
		}
	}
	sys := &system{Up: testkit.StartUp(t, "--without", "server,broker,robots", "--pod-range", "10.244.84.0/24")}
	sys.connect(t)
	s := &jobs{space: sys.in(t, "vcjob-ssh"), files: t.TempDir()}
	// Pods share the ports of the machine, so each sshd listens on the address of its Pod.
	const serve = `mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N "" -f /files/host-$HOSTNAME
exec /usr/sbin/sshd -D -e -f /dev/null -h /files/host-$HOSTNAME -p 2222 -o ListenAddress=$POD_IP -o PidFile=none`
	const distribute = `total=0 first=1
for host in $(echo $MPI_HOST | tr , ' '); do
  name=${host%%.*}
  until ssh $name true; do sleep 0.2; done
  part=$(ssh $name "echo \$(hostname) >&2; seq $first $((first + 49)) | awk '{ s += \$1 } END { print s }'")
  total=$((total + part)) first=$((first + 50))
done
echo total $total`
	worker, master := s.task("worker", 2, serve), s.task("master", 1, distribute, on(batchv1.TaskCompletedEvent, batchv1.CompleteJobAction))
	address := corev1.EnvVar{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}
	worker.Template.Spec.Containers[0].Env = []corev1.EnvVar{address}
	s.run("j", func(j *batchv1.JobSpec) {
		j.Plugins = map[string][]string{"mpi": {"--port=2222"}, "ssh": {"--ssh-port=2222"}, "svc": {"--publish-not-ready-addresses"}}
	}, master, worker)
	s.awaitJob("j", batchv1.JobCompleted)
	s.expectLog("j-master-0", "c", "j-worker-0")
	s.expectLog("j-master-0", "c", "j-worker-1")
	s.expectLog("j-master-0", "c", "total 5050")
}
