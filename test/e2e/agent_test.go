package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestExec_AppliesTemplatesOutputsAndLimits runs a job on the built agent that uses templates,
// outputs, limits and log following.
func TestExec_AppliesTemplatesOutputsAndLimits(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "1")
	s.awaitRobot("robot-1", "Online", time.Minute)
	s.apply(`
apiVersion: robot.k8s4r.io/v1alpha1
kind: Job
metadata: {name: whole}
spec:
  meta: {site: hall}
  taskGroups:
  - name: main
    meta: {shift: night}
    tasks:
    - name: work
      driver: exec
      user: "nobody"
      isolation: {required: [memory-limit, pid-namespace, read-only-system, user]}
      resources: {cpu: 500m, memory: 64Mi, networks: [{ports: [{name: http, port: 8080}]}]}
      templates: [{embeddedTmpl: '{{ meta "site" }}, {{ meta "shift" }}, {{ label "robot" }}', destPath: config}]
      outputs: [distance]
      config: {execConfig: {command: sh, args: [-c, 'cat config; echo; id -un; echo $K8S4R_PORT_HTTP ${robot.attr.os}; echo distance=4.2 > $K8S4R_OUTPUTS']}}
`)
	s.awaitJob("whole", "completed", time.Minute)
	task := s.task("whole-main-0-work")
	if got := task.Status.Outputs; len(got) != 1 || got["distance"] != "4.2" {
		t.Errorf("outputs are %v", got)
	}
	log := s.read(task.Name)
	for _, line := range []string{"hall, night, robot-1", "nobody", "8080 linux"} {
		log.expect(line, 10*time.Second)
	}
	log.end()

	t.Run("more memory than it asked for", func(t *testing.T) {
		greedy := jobOf("greedy", 1, shell("eat", "head -c 200000000 /dev/zero | tail"))
		greedy.Spec.TaskGroups[0].Tasks[0].Resources = &v1alpha1.Resources{Memory: quantity("32Mi")}
		s.create(greedy)
		s.awaitJob("greedy", "failed", time.Minute)
		if a := s.task("greedy-main-0-eat").Status.Attempts; len(a) == 0 || a[0].Reason != "OOMKilled" {
			t.Errorf("attempts are %+v, want OOMKilled", a)
		}
	})
	t.Run("a label of the robot that changes restarts the task", func(t *testing.T) {
		moved := jobOf("moved", 1, shell("wait", "cat where; echo; exec sleep 600"))
		text := `{{ label "place" "nowhere" }}`
		moved.Spec.TaskGroups[0].Tasks[0].Templates = []v1alpha1.Template{{EmbeddedTmpl: &text, DestPath: "where"}}
		s.create(moved)
		task := s.awaitTask("moved-main-0-wait", "running", time.Minute)
		follow := s.read("-f", task.Name)
		follow.expect("nowhere", 10*time.Second)
		if out, err := s.kubectl("patch", "rb", "robot-1", "--type=merge", "-p", `{"spec":{"labels":{"place":"yard"}}}`); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		follow.expect("yard", time.Minute)
		testkit.EventuallyNoError(t, time.Minute, "the second run is reported", func() error {
			a := s.task(task.Name).Status.Attempts
			if len(a) != 1 || len(a[0].Runs) != 2 || a[0].Runs[0].Reason != "TemplateChanged" {
				return fmt.Errorf("attempts are %+v, want one whose first run ended with TemplateChanged", a)
			}
			return nil
		})
	})
}

// TestAgent_KeepsTasksThroughKills kills the agent of a task that prints, again and again.
func TestAgent_KeepsTasksThroughKills(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0")
	s.robotWith("r1", nil)
	r1 := agent(t, s, "r1")
	s.awaitRobot("r1", "Online", time.Minute)
	const lines = 60
	s.create(jobOf("talk", 1, shell("say", fmt.Sprintf("for i in $(seq %d); do echo line $i; sleep 0.1; done; exit 0", lines))))
	task := s.awaitTask("talk-main-0-say", "running", time.Minute)
	follow := s.read("-f", task.Name)
	for i := range lines {
		follow.expect(fmt.Sprint("line ", i+1), time.Minute)
		if i%15 == 5 {
			r1.Kill()
			r1 = agent(t, s, "r1")
		}
	}
	s.awaitJob("talk", "completed", time.Minute)
	follow.end()
	done := s.task(task.Name)
	if done.Status.Attempt != 1 || len(done.Status.Attempts) != 1 || done.Status.ExitCode == nil || *done.Status.ExitCode != 0 {
		t.Errorf("it ended as %+v, want by its first attempt", done.Status)
	}
	testkit.EventuallyNoError(t, 10*time.Second, "nothing of it runs", func() error {
		if left := processesWith("K8S4R_TASK_UID=" + string(task.UID)); len(left) > 0 {
			return fmt.Errorf("%s", strings.Join(left, ", "))
		}
		return nil
	})
}

// processesWith lists the processes that have this variable in their environment.
func processesWith(variable string) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), variable) {
			found = append(found, path)
		}
	}
	return found
}
