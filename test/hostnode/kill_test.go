package hostnode

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/internal/testkit"
)

// k8s4r up is killed and started again: running containers keep running, and those that have
// exited meanwhile are reported with their exit code and log.
func TestContainers_SurviveANodeKill(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	sys := start(t, 0, "--pod-range", "10.244.80.0/24")
	s := sys.in(t, "kill")
	files := t.TempDir()
	pod := func(name, policy, end string) string {
		return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  restartPolicy: ` + policy + `
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: none
    command: [sh, -c, 'echo $$$$ >> /files/` + name + `; echo begins; until test -f /files/` + end + `; do sleep 0.05; done; echo ends; touch /files/` + name + `-ended; exit 7']
    readinessProbe: {exec: {command: [test, -f, /files/ready]}, periodSeconds: 1}
    volumeMounts: [{name: files, mountPath: /files}]
  volumes: [{name: files, hostPath: {path: ` + files + `}}]`
	}
	for _, manifest := range []string{pod("early", "Never", "end-early"), pod("late", "Never", "end-late"), pod("removed", "Always", "never"), pod("stays", "Always", "never")} {
		s.apply(manifest)
	}
	touch(t, files, "ready")
	for _, name := range []string{"early", "late", "removed", "stays"} {
		s.await(name, "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) })
	}
	before := s.pod("stays")
	s.Kill()
	touch(t, files, "end-early")
	testkit.Eventually(t, within, "early ended", func() bool {
		_, err := os.Stat(filepath.Join(files, "early-ended"))
		return err == nil
	})
	s.Start()
	s.connect(t)

	p := s.awaitPhase("early", corev1.PodFailed)
	if e := ended(p, "c"); e == nil || e.ExitCode != 7 || status(p, "c").RestartCount != 0 {
		t.Errorf("%s", describe(p))
	}
	s.expectLog("early", "c", "begins", "ends")
	touch(t, files, "end-late")
	if e := ended(s.awaitPhase("late", corev1.PodFailed), "c"); e == nil || e.ExitCode != 7 {
		t.Errorf("late ended as %+v", e)
	}
	s.expectLog("late", "c", "begins", "ends")
	after := s.await("stays", "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) })
	if a, b := status(before, "c"), status(after, "c"); a.ContainerID != b.ContainerID || !a.State.Running.StartedAt.Equal(&b.State.Running.StartedAt) || before.Status.PodIP != after.Status.PodIP {
		t.Errorf("before:\n%s\nafter:\n%s", describe(before), describe(after))
	}
	if b, _ := os.ReadFile(filepath.Join(files, "stays")); len(testkit.SplitLines(string(b))) != 1 {
		t.Errorf("it was started as processes %q", b)
	}
	s.must("stays", "c", "true")
	s.remove("removed")
}

func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// An orderly stop ends the containers, as at a shutdown of the machine. The next node restarts
// those whose restartPolicy requires it.
func TestContainers_EndWithAnOrderlyStop(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	s := start(t, 0, "--pod-range", "10.244.81.0/24").in(t, "stop")
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  containers: [{name: c, image: none, command: [sleep, "4713"]}]
`)
	s.await("again", "running", running("c"))
	s.Stop()
	if left := processes("sleep\x004713\x00"); len(left) > 0 {
		t.Errorf("the container is still running: %v", left)
	}
	s.Start()
	s.connect(t)
	p := s.await("again", "restarted", func(p *corev1.Pod) bool { return running("c")(p) && status(p, "c").RestartCount == 1 })
	if e := status(p, "c").LastTerminationState.Terminated; e == nil || e.ExitCode != 137 && e.ExitCode != 143 {
		t.Errorf("%s", describe(p))
	}
}
