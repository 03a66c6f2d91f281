package hostnode

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Commands run in a running container, with the current and the earlier protocol of kubectl.
func TestExec(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	s := start(t, 0, "--pod-range", "10.244.79.0/24").in(t, "exec")
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: target}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: none, env: [{name: MODE, value: fast}], command: [sleep, "600"], volumeMounts: [{name: work, mountPath: /work}]}
  volumes: [{name: work, emptyDir: {}}]
`)
	s.await("target", "running", running("c"))
	s.must("target", "c", "sh", "-c", "echo $MODE > /work/file")
	out, errs, err := s.exec("target", "c", "", false, "sh", "-c", "cat /work/file; hostname; echo oh >&2; exit 4")
	if out != "fast\ntarget\n" || errs != "oh\n" || exitCode(err) != 4 {
		t.Errorf("says %q and %q and ends with %v", out, errs, err)
	}
	if out, _, err := s.exec("target", "c", "from outside", false, "cat"); out != "from outside" || err != nil {
		t.Errorf("cat says %q (%v)", out, err)
	}
	if out, _, err := s.exec("target", "c", "", true, "sh", "-c", "test -t 0 && test -t 1 && echo terminal"); out != "terminal\r\n" || err != nil {
		t.Errorf("in a terminal it says %q (%v)", out, err)
	}
	if _, _, err := s.exec("target", "c", "", false, "no-such-command"); err == nil || !strings.Contains(err.Error(), "not found on PATH") {
		t.Errorf("a command that is not there: %v", err)
	}
	request := s.set.CoreV1().RESTClient().Get().Resource("pods").Namespace(s.name).Name("target").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "c", Command: []string{"sh", "-c", "cat; exit 6"}, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	socket, err := remotecommand.NewWebSocketExecutor(s.config, "GET", request.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := stream(t.Context(), socket, "by web socket", false); out != "by web socket" || exitCode(err) != 6 {
		t.Errorf("by web socket it says %q (%v)", out, err)
	}
	if out, err := s.RunProgram("k8s4r", "kubectl", "exec", "-n", s.name, "target", "--", "cat", "/work/file"); out != "fast\n" || err != nil {
		t.Errorf("kubectl exec says %q (%v)", out, err)
	}
}
