package e2e

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// oneOfEachKind has an object of each kind that the console shows, by the console's name of the kind.
var oneOfEachKind = map[string]string{
	"jobs":         `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, metadata: {name: one}, spec: {taskGroups: [{name: g, tasks: [` + echo + `]}]}}`,
	"taskgroups":   `{apiVersion: robot.k8s4r.io/v1alpha1, kind: TaskGroup, metadata: {name: one}, spec: {jobName: one, groupName: g, count: 1, tasks: [` + echo + `]}}`,
	"tasks":        `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Task, metadata: {name: one}, spec: ` + echo + `}`,
	"robots":       `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Robot, metadata: {name: one}, spec: {robotId: one}}`,
	"jobflows":     `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, metadata: {name: one}, spec: {jobRetainPolicy: retain, flows: [{name: a}]}}`,
	"cronjobflows": `{apiVersion: flow.k8s4r.io/v1alpha1, kind: CronJobFlow, metadata: {name: one}, spec: {schedule: "0 0 1 1 *", jobFlowTemplate: {spec: {jobRetainPolicy: retain, flows: [{name: a}]}}}}`,
	"vcjobs":       `{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: one}, spec: {tasks: [{name: t, replicas: 1, template: {spec: ` + echoPod + `}}]}}`,
	"rayclusters":  `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: one}, spec: {rayVersion: 2.53.0, headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: c, image: i}]}}}}}`,
	"pods":         `{apiVersion: v1, kind: Pod, metadata: {name: one, labels: {volcano.sh/job-name: one}}, spec: ` + echoPod + `}`,
}

const (
	echo    = `{name: t, driver: exec, config: {execConfig: {command: echo}}}`
	echoPod = `{restartPolicy: Never, containers: [{name: c, image: i}]}`
)

// deployedConsole is a console with nothing but the rights in config/rbac, and TLS of its own.
type deployedConsole struct {
	t   *testing.T
	url string
}

func (s *system) console() *deployedConsole {
	s.t.Helper()
	dir := s.t.TempDir()
	testca.New(s.t).WriteServerFiles(dir)
	address := testkit.FreeAddr(s.t)
	run(s.t, "k8s4r-console", "--kubeconfig", s.serviceAccountKubeconfig("k8s4r-console"), "--bind-address", address,
		"--cert-file", filepath.Join(dir, "tls.crt"), "--key-file", filepath.Join(dir, "tls.key"), "--metrics-bind-address=0", "--health-probe-bind-address=0")
	return &deployedConsole{s.t, "https://" + address + "/api/v1"}
}

// pauses requests a pause of the schedule, by a token or else by a certificate, and returns the answer of
// the console.
func (c *deployedConsole) pauses(token string, proof ...tls.Certificate) string {
	c.t.Helper()
	return c.postAction(`{"action": "pause", "items": [{"kind": "cronjobflows", "namespace": "default", "name": "one"}]}`, token, proof...)
}

// unlocks requests the end of the robot's maintenance, or a dry run of that.
func (c *deployedConsole) unlocks(token string, isDryRun bool) string {
	c.t.Helper()
	return c.postAction(fmt.Sprintf(`{"action": "unlock", "items": [{"kind": "robots", "namespace": "default", "name": "one"}], "dryRun": %t}`, isDryRun), token)
}

func (c *deployedConsole) postAction(action, token string, proof ...tls.Certificate) string {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/actions", strings.NewReader(action))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: proof}, DisableKeepAlives: true}} //nolint:gosec // its certificate is the test's own
	answer, err := h.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// TestConsole_WorksWithItsRoleAlone: a kind that the role leaves out would not fail, but be missing
// from all lists, so each is looked for.
func TestConsole_WorksWithItsRoleAlone(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "manager,server,broker,robots,node,console")
	for _, manifest := range oneOfEachKind {
		s.apply(manifest)
	}
	c := s.console()
	viewer, editor, outsider := s.bearer("viewer", "view"), s.bearer("editor", "edit"), s.bearer("outsider", "")

	testkit.EventuallyNoError(t, time.Minute, "it serves", func() error {
		code, body := get(t, c.url+"/me", viewer)
		var me struct {
			User       string
			Namespaces []string
		}
		if code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		err := json.Unmarshal([]byte(body), &me)
		if err == nil && (me.User != "system:serviceaccount:default:viewer" || !slices.Contains(me.Namespaces, "default")) {
			err = errors.New(body)
		}
		return err
	})
	for kind := range oneOfEachKind {
		if code, body := get(t, c.url+"/objects/"+kind+"?namespace=default", viewer); code != http.StatusOK || !strings.Contains(body, `"name":"one"`) {
			t.Errorf("of %s it shows: %d %s", kind, code, body)
		}
		if code, body := get(t, c.url+"/objects/"+kind+"?namespace=default", outsider); code != http.StatusForbidden {
			t.Errorf("an outsider sees of %s: %d %s", kind, code, body)
		}
	}
	if code, body := get(t, c.url+"/me", ""); code != http.StatusUnauthorized {
		t.Errorf("without credentials: %d %s", code, body)
	}
	if says := c.pauses(viewer); !strings.Contains(says, `"ok":false`) || !strings.Contains(says, "default:viewer") {
		t.Errorf("a viewer pauses: %s", says)
	}
	if says := c.pauses(editor); !strings.Contains(says, `"ok":true`) {
		t.Errorf("an editor pauses: %s", says)
	}
	if out, err := s.kubectl("get", "cronjobflow", "one", "-o", "jsonpath={.spec.suspend}"); err != nil || out != "true" {
		t.Errorf("%v; of the schedule that an editor has paused, suspend is %q", err, out)
	}
	s.unlocksRobot(c)

	admin := s.RESTConfig()
	proof, err := tls.LoadX509KeyPair(admin.CertFile, admin.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if says := c.pauses("", proof); !strings.Contains(says, `"ok":false`) || !strings.Contains(says, "cannot impersonate") {
		t.Errorf("by a certificate, whose holder the console may not act as: %s", says)
	}
	if out, err := s.kubectl("create", "clusterrolebinding", "acts", "--clusterrole=k8s4r-console-impersonator", "--serviceaccount=k8s4r-system:k8s4r-console"); err != nil {
		t.Fatal(err, out)
	}
	testkit.EventuallyNoError(t, 10*time.Second, "the console acts as who shows a certificate", func() error {
		if says := c.pauses("", proof); !strings.Contains(says, `"ok":true`) {
			return fmt.Errorf("it says %s", says)
		}
		return nil
	})
}

// unlocksRobot ends the maintenance of the robot, as a user who may change robots, and as one who also has
// the verb unlock.
func (s *system) unlocksRobot(c *deployedConsole) {
	s.t.Helper()
	for _, command := range [][]string{
		{"create", "clusterrole", "cordons", "--verb=get,list,update,patch", "--resource=robots.robot.k8s4r.io"},
		{"patch", "robot", "one", "--subresource=status", "--type=merge", "-p", `{"status":{"maintenance":{"id":"m1","by":"bob (uid 1001)"}}}`},
	} {
		if out, err := s.kubectl(command...); err != nil {
			s.t.Fatal(err, out)
		}
	}
	operator, admin := s.bearer("operator", "cordons"), s.bearer("chief", "admin")
	requires := func(token string, isDryRun bool, want ...string) {
		s.t.Helper()
		testkit.EventuallyNoError(s.t, 20*time.Second, "the console answers "+strings.Join(want, " and "), func() error {
			answer := c.unlocks(token, isDryRun)
			if !strings.Contains(answer, want[0]) || !strings.Contains(answer, want[1]) {
				return errors.New(answer)
			}
			return nil
		})
	}
	requires(operator, true, `"ok":false`, "you may not unlock robots.robot.k8s4r.io")
	requires(operator, false, `"ok":false`, "you may not unlock robots.robot.k8s4r.io")
	requires(admin, true, `"ok":true`, "the maintenance by bob (uid 1001) ends")
	if id := s.unlockOf("one"); id != "" {
		s.t.Errorf("before a user with the verb has confirmed it, spec.unlockMaintenance is %q", id)
	}
	requires(admin, false, `"ok":true`, "the maintenance by bob (uid 1001) ends")
	if id := s.unlockOf("one"); id != "m1" {
		s.t.Errorf("then it is %q", id)
	}
}

func (s *system) unlockOf(robot string) string {
	s.t.Helper()
	out, err := s.kubectl("get", "robot", robot, "-o", "jsonpath={.spec.unlockMaintenance}")
	if err != nil {
		s.t.Fatal(err, out)
	}
	return out
}
