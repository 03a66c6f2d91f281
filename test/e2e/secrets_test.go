package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

// needy returns a Job whose task writes the key password of the Secret db to a file.
func needy(name, file string) *v1alpha1.Job {
	task := shell("write", fmt.Sprintf(`printf %%s "$PASSWORD" > %s`, file))
	task.SecretEnv = map[string]v1alpha1.SecretKey{"PASSWORD": {SecretName: "db", Key: "password"}}
	return jobOf(name, 1, task)
}

// waitsFor returns what the task waits for according to its status, or an empty string.
func (s *system) waitsFor(task string) string {
	c := meta.FindStatusCondition(s.task(task).Status.Conditions, v1alpha1.ConditionSecretsReady)
	if c == nil {
		return ""
	}
	return c.Message
}

func TestSecret_ReachesOnlyItsTask(t *testing.T) {
	t.Parallel()
	const password = "hunter2-never-written"
	s := start(t, "--robots", "1")
	s.awaitRobot("robot-1", "Online", time.Minute)
	seen := filepath.Join(t.TempDir(), "seen")
	s.create(needy("needy", seen))
	testkit.Eventually(t, time.Minute, "the task says what it waits for", func() bool {
		out, err := s.RunProgram("k8s4r", "why", "needy-main-0-write")
		return err == nil && strings.Contains(out, "it waits for a Secret") && strings.Contains(out, "Secret db does not exist")
	})
	if out, err := s.kubectl("create", "secret", "generic", "db", "--from-literal=password="+password); err != nil {
		t.Fatalf("create the Secret: %v\n%s", err, out)
	}
	s.awaitJob("needy", "completed", time.Minute)
	if got, err := os.ReadFile(seen); err != nil || string(got) != password {
		t.Errorf("the task has seen %q, %v", got, err)
	}
	if says := s.waitsFor("needy-main-0-write"); says != "" {
		t.Errorf("it has run, and still says %s", says)
	}
	out, err := s.kubectl("get", "rjob,rtg,rtask,rb,events", "-o", "yaml")
	if err != nil || !strings.Contains(out, "SecretMissing") || strings.Contains(out, password) {
		t.Errorf("the objects say %v\n%s", err, out)
	}
	if out, err := s.RunProgram("k8s4r", "logs", "needy-main-0-write"); err != nil || strings.Contains(out, password) {
		t.Errorf("the log says %v\n%s", err, out)
	}
	s.nowhereInFiles(password, "logs", "robots")
}

// TestSecret_AfterARestartOfTheAgent restarts an agent without contact, and then kills the processes of two
// tasks with a Secret. One waits for contact. The robot keeps the Secret of the other one.
func TestSecret_AfterARestartOfTheAgent(t *testing.T) {
	t.Parallel()
	const password = "hunter2-never-written"
	s := start(t, "--robots", "0", "--without", "node,console")
	if out, err := s.kubectl("create", "secret", "generic", "db", "--from-literal=password="+password); err != nil {
		t.Fatalf("create the Secret: %v\n%s", err, out)
	}
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	args := []string{"--mqtt-url", "mqtts://" + way.Addr(), "--heartbeat", "1s"}
	r1 := agent(t, s, "r1", args...)
	s.awaitRobot("r1", "Online", 20*time.Second)
	waits, sealed, seen := s.file("waits"), s.file("sealed"), s.file("seen")
	for name, starts := range map[string]string{"waits": waits, "sealed": sealed} {
		job := restarted(name, v1alpha1.RestartPolicy{Attempts: 9, Mode: v1alpha1.RestartDelay}, starts, fmt.Sprintf(`echo "$PASSWORD" >> %s; exec sleep 600`, seen))
		task := &job.Spec.TaskGroups[0].Tasks[0]
		task.SecretEnv = map[string]v1alpha1.SecretKey{"PASSWORD": {SecretName: "db", Key: "password"}}
		if name == "sealed" {
			task.OfflineSecrets = v1alpha1.OfflineSecretsSealed
		}
		s.create(job)
		s.killRun(starts, 1)
		s.awaitRuns(starts, 2)
	}
	way.RefuseConnections()
	r1.Kill()
	r1 = agent(t, s, "r1", args...)
	r1.awaitSays(t, 20*time.Second, "no connection to the MQTT broker")
	s.killRun(waits, 2)
	r1.awaitSays(t, 20*time.Second, "task will be restarted")
	s.killRun(sealed, 2)
	s.awaitRuns(sealed, 3) // it was killed later than the other one
	s.awaitRuns(waits, 2)
	s.nowhereInFiles(password, "agents")
	way.RestoreNetwork()
	s.awaitRuns(waits, 3)
	testkit.Eventually(t, 20*time.Second, "each run has the password", func() bool {
		return slices.Equal(linesOf(seen), slices.Repeat([]string{password}, 6))
	})
	for name, starts := range map[string]string{"waits": waits, "sealed": sealed} {
		task := s.awaitTask(name+"-main-0-work", "running", 20*time.Second)
		if got := attemptsIn(starts); !slices.Equal(got, []string{"1", "1", "1"}) || task.Status.Attempt != 1 {
			t.Errorf("%s ran as attempts %s", name, got)
		}
	}
	s.nowhereInFiles(password, "agents")
}

// nowhereInFiles looks through all files but those of the store, where the Secret is. These directories of
// the data directory must have some.
func (s *system) nowhereInFiles(text string, dirs ...string) {
	s.t.Helper()
	looked := map[string]bool{}                                                          // by the directory of the data directory
	err := filepath.WalkDir(s.DataDir, func(path string, d fs.DirEntry, _ error) error { // an error: it has just gone
		switch {
		case d == nil:
			return nil
		case d.IsDir() && d.Name() == "etcd":
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(text)) {
			s.t.Errorf("it stands in %s", path)
		}
		below, _ := filepath.Rel(s.DataDir, path)
		looked[strings.Split(below, string(filepath.Separator))[0]] = true
		return nil
	})
	if err != nil || slices.ContainsFunc(dirs, func(dir string) bool { return !looked[dir] }) {
		s.t.Errorf("looked through %v, %v", looked, err)
	}
}
