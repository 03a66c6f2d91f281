package hostnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// rayWithin is longer: the probes of Ray start after 10 s, and one that fails on a busy machine is
// repeated 5 s later.
const rayWithin = 2 * within

// rays is a namespace with one RayCluster. Its processes have a unique directory in their
// arguments.
type rays struct {
	*space
	mark string
}

// startRay starts the example on a machine with this PATH.
func startRay(t *testing.T, path, podRange string) *rays {
	t.Helper()
	rootOnly(t)
	t.Setenv("PATH", path)
	sys := &system{Up: testkit.StartUp(t, "--without", "server,broker,robots", "--pod-range", podRange, "--node-capacity", "cpu=16,memory=32Gi")}
	sys.connect(t)
	s := &rays{sys.in(t, "ray"), filepath.Join(t.TempDir(), "session")}
	t.Cleanup(func() { // the next run would find what a failure leaves
		for _, pid := range s.processes() {
			kill(pid)
		}
	})
	text, err := os.ReadFile("../../examples/raycluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cluster := &rayv1.RayCluster{}
	if err := yaml.UnmarshalStrict(text, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Namespace = s.name
	cluster.Spec.HeadGroupSpec.RayStartParams["temp-dir"] = s.mark
	cluster.Spec.WorkerGroupSpecs[0].RayStartParams = map[string]string{"temp-dir": s.mark}
	if err := s.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return s
}

// processes returns the processes of Ray.
func (s *rays) processes() []string {
	return processesThat(func(cmdline string) bool { return strings.Contains(cmdline, "\x00--temp-dir="+s.mark+"\x00") })
}

func kill(pid string) {
	if n, err := strconv.Atoi(pid); err == nil {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
}

func (s *rays) cluster() *rayv1.RayCluster {
	s.Helper()
	c := &rayv1.RayCluster{}
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: s.name, Name: "field"}, c); err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *rays) awaitCluster(what string, is func(*rayv1.RayCluster) bool) *rayv1.RayCluster {
	s.Helper()
	var c *rayv1.RayCluster
	testkit.EventuallyNoError(s.T, rayWithin, "the cluster "+what, func() error {
		if c = s.cluster(); is(c) {
			return nil
		}
		text, _ := yaml.Marshal(c.Status)
		return fmt.Errorf("its status is %s", text)
	})
	return c
}

func (s *rays) awaitReady() *rayv1.RayCluster {
	s.Helper()
	return s.awaitCluster("is ready", func(c *rayv1.RayCluster) bool { return c.Status.State == rayv1.StateReady })
}

func (s *rays) setSuspend(is bool) {
	s.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, is))
	if err := s.Patch(s.Context(), s.cluster(), patch); err != nil {
		s.Fatal(err)
	}
}

// pods returns the pods of the cluster of one kind.
func (s *rays) pods(kind string) []corev1.Pod {
	s.Helper()
	var all corev1.PodList
	if err := s.List(context.Background(), &all, client.InNamespace(s.name), client.MatchingLabels{rayv1.LabelNodeType: kind}); err != nil {
		s.Fatal(err)
	}
	return all.Items
}

// awaitProcesses waits until Ray has n processes.
func (s *rays) awaitProcesses(n int) []string {
	s.Helper()
	var all []string
	testkit.EventuallyNoError(s.T, rayWithin, fmt.Sprintf("%d processes of Ray", n), func() error {
		if all = s.processes(); len(all) != n {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
	return all
}

// The example runs with a fake ray command on the machine. Ray's own probes and its init container
// are used.
func TestRayCluster_RunsAsProcesses(t *testing.T) {
	bin := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(bin, rayCommand)); err != nil {
		t.Fatal(err)
	}
	s := startRay(t, bin+":"+os.Getenv("PATH"), "10.244.84.0/24")
	c := s.awaitReady()
	if c.Status.AvailableWorkerReplicas != 2 || !meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.HeadPodReady) || c.Status.Head.PodIP == "" {
		t.Errorf("status is %+v", c.Status)
	}
	s.awaitProcesses(3)
	for _, pod := range s.pods(rayv1.NodeTypeWorker) {
		if !strings.HasSuffix(strings.TrimSpace(s.log(pod.Name, corev1.PodLogOptions{Container: "wait-gcs-ready"})), "the GCS is ready") {
			t.Errorf("worker %s did not wait for the head", pod.Name)
		}
		if !holds(&pod, corev1.PodReady) || pod.Spec.Containers[0].ReadinessProbe.HTTPGet == nil {
			t.Errorf("worker %s is not ready by Ray's probe:\n%s", pod.Name, describe(&pod))
		}
	}

	s.aKilledWorkerStartsAgain()
	s.aDeletedWorkerIsReplaced()

	s.setSuspend(true)
	s.awaitCluster("is suspended", func(c *rayv1.RayCluster) bool { return c.Status.State == rayv1.StateSuspended })
	if left := s.processes(); len(left) > 0 {
		t.Errorf("a suspended cluster has processes %v", left)
	}
	s.setSuspend(false)
	s.awaitReady()
	s.awaitProcesses(3)

	if err := s.Delete(t.Context(), s.cluster()); err != nil {
		t.Fatal(err)
	}
	s.awaitProcesses(0)
	testkit.EventuallyNoError(t, rayWithin, "nothing left", s.left)
}

// left returns an error that lists what still exists of the cluster.
func (s *rays) left() error {
	var services corev1.ServiceList
	if err := s.List(context.Background(), &services, client.InNamespace(s.name)); err != nil {
		return err
	}
	if heads, workers := s.pods(rayv1.NodeTypeHead), s.pods(rayv1.NodeTypeWorker); len(heads)+len(workers)+len(services.Items) > 0 {
		return fmt.Errorf("%d heads, %d workers, %d services", len(heads), len(workers), len(services.Items))
	}
	return nil
}

// aKilledWorkerStartsAgain checks that a worker is restarted in its Pod, whose restartPolicy is
// Always.
func (s *rays) aKilledWorkerStartsAgain() {
	s.Helper()
	worker := s.pods(rayv1.NodeTypeWorker)[0]
	found := false
	for _, pid := range s.processes() {
		if variable(pid, "RAY_CLOUD_INSTANCE_ID") == worker.Name {
			found = true
			kill(pid)
		}
	}
	if !found {
		s.Fatalf("no process is worker %s", worker.Name)
	}
	s.await(worker.Name, "has started again", func(p *corev1.Pod) bool { return status(p, "ray-worker").RestartCount == 1 })
	s.awaitReady()
	s.awaitProcesses(3)
}

// aDeletedWorkerIsReplaced checks that another Pod replaces a deleted worker.
func (s *rays) aDeletedWorkerIsReplaced() {
	s.Helper()
	gone := s.pods(rayv1.NodeTypeWorker)[0]
	s.remove(gone.Name)
	s.awaitReady()
	s.awaitProcesses(3)
	for _, pod := range s.pods(rayv1.NodeTypeWorker) {
		if pod.UID == gone.UID {
			s.Errorf("worker %s is there again", pod.Name)
		}
	}
}

// variable returns a variable in the environment of a process. It is empty if it is not set.
func variable(pid, name string) string {
	text, _ := os.ReadFile("/proc/" + pid + "/environ")
	for _, v := range strings.Split(string(text), "\x00") {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// The same example runs on a machine without the ray command.
func TestRayCluster_ReportsMissingRay(t *testing.T) {
	s := startRay(t, "/usr/sbin:/usr/bin:/sbin:/bin", "10.244.85.0/24")
	want := "with k8s4r up, install ray on the machine"
	c := s.awaitCluster("says why", func(c *rayv1.RayCluster) bool { return strings.Contains(c.Status.Reason, want) })
	if c.Status.State == rayv1.StateReady || !strings.Contains(c.Status.Reason, "the head Pod is not ready: Ray was not found") {
		t.Errorf("state %q, reason %q", c.Status.State, c.Status.Reason)
	}
	testkit.EventuallyNoError(t, within, "event RayNotFound", func() error {
		var all eventsv1.EventList
		if err := s.List(context.Background(), &all, client.InNamespace(s.name)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Regarding.Kind == "RayCluster" && e.Reason == "RayNotFound" && e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, want) {
				return nil
			}
		}
		return fmt.Errorf("there is none among %d", len(all.Items))
	})
}
