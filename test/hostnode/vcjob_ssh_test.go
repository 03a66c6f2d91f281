package hostnode

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
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
	t.Run("in a Job", func(t *testing.T) {
		s := &jobs{space: sys.in(t, "vcjob-ssh"), files: t.TempDir()}
		s.run("j", func(j *batchv1.JobSpec) {
			j.Plugins = map[string][]string{"mpi": {"--port=2222"}, "ssh": {"--ssh-port=2222"}, "svc": {"--publish-not-ready-addresses"}}
		}, s.sumTasks()...)
		s.awaitJob("j", batchv1.JobCompleted)
		s.expectSum("j")
	})
	t.Run("in a step of a flow, with arguments in its patch", func(t *testing.T) {
		s := &jobs{space: sys.in(t, "flow-ssh"), files: t.TempDir()}
		tmpl := &flowv1.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "sum"}}
		tmpl.Spec = batchv1.JobSpec{Tasks: s.sumTasks(), Plugins: map[string][]string{"mpi": {}, "svc": {"--publish-not-ready-addresses"}}}
		flow := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "f"}}
		const patch = `{"plugins": {"ssh": ["--ssh-port=2222"]}}`
		flow.Spec.Flows = []flowv1.Flow{{Name: "sum", Patch: &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: []byte(patch)}}}}
		for _, o := range []client.Object{tmpl, flow} {
			if err := s.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		testkit.EventuallyNoError(t, within, "the flow has succeeded", func() error {
			if err := s.Get(context.Background(), client.ObjectKeyFromObject(flow), flow); err != nil {
				return err
			}
			if phase := flow.Status.State.Phase; phase != flowv1.Succeed {
				return fmt.Errorf("it is %s", phase)
			}
			return nil
		})
		s.expectSum("f-sum")
	})
}

// sumTasks returns a master that lets two workers add the numbers to 100.
func (s *jobs) sumTasks() []batchv1.TaskSpec {
	// Pods share the ports of the machine, so each sshd listens on the address of its Pod.
	const serve = `mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N "" -f /files/host-$HOSTNAME
exec /usr/sbin/sshd -D -e -f /dev/null -h /files/host-$HOSTNAME -p 2222 -o ListenAddress=$POD_IP -o PidFile=none`
	const distribute = `total=0 first=1
for host in $(echo $MPI_HOST | tr , ' '); do
  name=${host%%.*}
  until ssh $name true; do sleep 0.2; done
  part=$(ssh $host "echo \$(hostname) >&2; seq $first $((first + 49)) | awk '{ s += \$1 } END { print s }'")
  total=$((total + part)) first=$((first + 50))
done
echo total $total`
	worker, master := s.task("worker", 2, serve), s.task("master", 1, distribute, on(batchv1.TaskCompletedEvent, batchv1.CompleteJobAction))
	address := corev1.EnvVar{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}
	worker.Template.Spec.Containers[0].Env = []corev1.EnvVar{address}
	return []batchv1.TaskSpec{master, worker}
}

// expectSum expects the log of the master of a Job that both workers have answered.
func (s *jobs) expectSum(job string) {
	s.Helper()
	for _, line := range []string{job + "-worker-0", job + "-worker-1", "total 5050"} {
		s.expectLog(job+"-master-0", "c", line)
	}
}
