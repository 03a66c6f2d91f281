package drivers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// The examples that need Docker or java run on a robot.
func TestDrivers_RunJobs(t *testing.T) {
	e := startEngine(t)
	t.Setenv("K8S4R_AGENT_DOCKER_SOCKET", e.socket)
	up := testkit.StartUp(t, "--robots", "1")
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := up.RunProgram("k8s4r", append([]string{"kubectl"}, args...)...)
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", args, err, out)
		}
		return out
	}
	testkit.Eventually(t, time.Minute, "the robot offers all drivers", func() bool {
		return strings.Contains(kubectl("get", "robots", "-o", "jsonpath={.items[*].status.deviceInfo.drivers}"), `["docker","exec","java","raw_exec"]`)
	})
	e.hasImage("busybox:1.36")
	files := httptest.NewServer(http.FileServer(http.Dir("testdata")))
	defer files.Close()
	for file, replacer := range map[string]*strings.Replacer{
		"docker": strings.NewReplacer(),
		"java":   strings.NewReplacer("https://files.example/planner.jar", files.URL+"/shell.jar", "planner.jar", "shell.jar", "[plan]", "[test -f shell.jar]"),
	} {
		text, err := os.ReadFile(filepath.Join("../../examples/drivers", file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), file+".yaml")
		if err := os.WriteFile(copied, []byte(replacer.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl("apply", "-f", copied)
		kubectl("wait", "rjob/"+file, "--for=jsonpath={.status.state}=completed", "--timeout=60s")
	}
	killedShimEndsContainer(t, e, kubectl)
}

const restless = `
apiVersion: robot.k8s4r.io/v1alpha1
kind: Task
metadata: {name: restless}
spec:
  name: restless
  driver: docker
  config: {dockerConfig: {image: "` + image + `", command: sleep, args: ["600"], networkMode: none}}
`

// killedShimEndsContainer kills the shim of a container. The task must be restarted in
// a new container.
func killedShimEndsContainer(t *testing.T, e *engine, kubectl func(...string) string) {
	file := filepath.Join(t.TempDir(), "task.yaml")
	if err := os.WriteFile(file, []byte(restless), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "-f", file)
	uid := kubectl("get", "rtask", "restless", "-o", "jsonpath={.metadata.uid}")
	only := func(n int) func() bool {
		return func() bool { return slices.Equal(e.containers(), []string{fmt.Sprintf("k8s4r-%s-%d", uid, n)}) }
	}
	await(t, "the container to run", only(1))
	if err := syscall.Kill(shimOf(t, uid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "another one to run", only(2))
	kubectl("delete", "rtask", "restless", "--timeout=60s")
	await(t, "it to be gone", func() bool { return len(e.containers()) == 0 })
}

// shimOf returns the shim of a task.
func shimOf(t *testing.T, uid string) int {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		line, _ := os.ReadFile(file)
		if strings.HasPrefix(string(line), "k8s4r-agent\x00shim\x00"+uid+"/") {
			var pid int
			_, _ = fmt.Sscanf(file, "/proc/%d/", &pid)
			return pid
		}
	}
	t.Fatal("the task has no shim")
	return 0
}
