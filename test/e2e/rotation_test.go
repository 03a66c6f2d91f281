package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestRotation_LocksOutNoRobotAndLosesNoTask replaces the CA of robots while one robot of `up`,
// which has the CA's file, and one that has joined with a token run a task each.
func TestRotation_LocksOutNoRobotAndLosesNoTask(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "1", "--without", "node", "--robot-ca-duration", "10m", "--robot-certificate-duration", "20s")
	s.joins("r1", t.TempDir(), s.token())
	for _, robot := range []string{"robot-1", "r1"} {
		s.awaitRobot(robot, "Online", time.Minute)
	}
	job := jobOf("long", 2, shell("say", "echo started; sleep 3600"))
	s.create(job)
	for _, task := range []string{"long-main-0-say", "long-main-1-say"} {
		s.awaitTask(task, "running", time.Minute)
	}
	before := s.attempts("long")

	first := s.trustedCAs()
	if len(first) != 1 {
		t.Fatalf("%d CAs", len(first))
	}
	s.k8s4r("ca", "rotate", "--period", "1m", "--data-dir", s.DataDir)
	testkit.EventuallyNoError(t, time.Minute, "the next CA is trusted", func() error { return s.expectCAs(2, first[0], true) })
	testkit.EventuallyNoError(t, 5*time.Minute, "the first CA is removed", func() error {
		for _, robot := range []string{"robot-1", "r1"} {
			if r := s.robot(robot); r.Status.Phase != "Online" {
				t.Fatalf("%s is %s", robot, r.Status.Phase)
			}
		}
		return s.expectCAs(1, first[0], false)
	})
	next := s.trustedCAs()[0]
	for _, robot := range []string{"robot-1", "r1"} {
		serial := s.robot(robot).Status.Identity.Certificate.SerialNumber
		testkit.Eventually(t, time.Minute, robot+" renews and connects with the next CA", func() bool {
			r := s.robot(robot)
			return r.Status.Identity.Certificate.SerialNumber != serial && meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionConnected)
		})
	}
	if after := s.attempts("long"); !maps.Equal(after, before) {
		t.Errorf("tasks were started again: %v, before %v", after, before)
	}
	s.create(jobOf("later", 2, shell("say", "echo hello")))
	s.awaitJob("later", "completed", time.Minute)
	s.joins("r2", t.TempDir(), s.token())
	s.awaitRobot("r2", "Online", time.Minute)
	testkit.EventuallyNoError(t, 2*time.Minute, "clients of the log API trust the next CA", func() error {
		out, err := s.RunProgram("k8s4r", "logs", "later-main-0-say")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	if got := s.trustedCAs(); !bytes.Equal(got[0], next) {
		t.Error("the CA was replaced again")
	}
}

// attempts returns the attempt of each task of a job, and its robot.
func (s *system) attempts(job string) map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for _, task := range s.tasksOf(job) {
		all[task.Name] = fmt.Sprintf("attempt %d on %s, %s", task.Status.Attempt, task.Spec.TargetRobot, task.Status.State)
	}
	return all
}

// trustedCAs returns the CAs of robots, as they are in the file of `up`.
func (s *system) trustedCAs() [][]byte {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.DataDir, "pki", "robots", "ca.crt"))
	if err != nil {
		s.t.Fatal(err)
	}
	found, err := keyfile.ParseCertificates(text)
	if err != nil {
		s.t.Fatal(err)
	}
	var all [][]byte
	for _, c := range found {
		all = append(all, c.Raw)
	}
	return all
}

// expectCAs returns an error unless n CAs are trusted, and this one is among them as given.
func (s *system) expectCAs(n int, one []byte, isAmong bool) error {
	s.t.Helper()
	all := s.trustedCAs()
	found := false
	for _, c := range all {
		found = found || bytes.Equal(c, one)
	}
	if len(all) != n || found != isAmong {
		return fmt.Errorf("%d CAs are trusted, the first among them: %v", len(all), found)
	}
	return nil
}
