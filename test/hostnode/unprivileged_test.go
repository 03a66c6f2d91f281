package hostnode

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// unprivileged is the uid of the Unix account "nobody".
const unprivileged = 65534

// TestWithoutRoot tests what works for a user other than root, and that everything else is
// rejected with an explanation.
func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	uid := uint32(0) // 0: the user is not root anyway
	if os.Geteuid() == 0 {
		uid = unprivileged
	}
	s := start(t, uid).in(t, "plain")
	// Other users cannot access t.TempDir.
	host, err := os.MkdirTemp("", "hostnode-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(host) })
	if err := os.Chmod(host, 0o777); err != nil {
		t.Fatal(err)
	}
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast}
---
apiVersion: v1
kind: Pod
metadata: {name: works}
spec:
  restartPolicy: OnFailure
  initContainers: [{name: first, image: none, command: ["true"]}]
  containers:
  - name: c
    image: none
    command: [sh, -c, 'echo $MODE; printf left > $K8S4R_TERMINATION_LOG; until test -f ` + host + `/end; do sleep 0.05; done']
    env: [{name: MODE, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}]
    readinessProbe: {exec: {command: [sh, -c, 'test "$MODE" = fast']}, periodSeconds: 1}
    volumeMounts: [{name: host, mountPath: ` + host + `}]
  volumes: [{name: host, hostPath: {path: ` + host + `}}]
---
apiVersion: v1
kind: Pod
metadata: {name: mounts}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: ["true"], volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: another-user}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: ["true"], securityContext: {runAsUser: 4711}}]
`)
	p := s.await("works", "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) })
	if p.Status.PodIP != p.Status.HostIP {
		t.Errorf("without root there are no addresses of pods: %s", describe(p))
	}
	s.must("works", "c", "touch", host+"/end")
	p = s.awaitPhase("works", corev1.PodSucceeded)
	s.expectLog("works", "c", "fast")
	if e := ended(p, "c"); e == nil || e.Message != "left" {
		t.Errorf("%s", describe(p))
	}
	p = s.awaitPhase("mounts", corev1.PodFailed)
	if !strings.Contains(p.Status.Message, "k8s4r runs without root and cannot mount anything; run it as root") {
		t.Errorf("%s", describe(p))
	}
	s.await("another-user", "is refused", func(p *corev1.Pod) bool {
		w := status(p, "c").State.Waiting
		return w != nil && strings.Contains(w.Message, "hostnode runs without root")
	})
}
