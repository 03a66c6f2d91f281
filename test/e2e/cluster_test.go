package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestSeparateProgramsWithLeastRights runs the programs as a cluster does: two
// managers and two servers, each with nothing but the rights in config/rbac,
// against an API server that has had `kubectl apply -k config`.
func TestSeparateProgramsWithLeastRights(t *testing.T) {
	s := start(t, "--without", "manager,server,robots")
	if out, err := s.kubectl("apply", "-k", "../../config"); err != nil {
		t.Fatalf("apply config: %v\n%s", err, out)
	}
	manager, server := s.serviceAccountKubeconfig("k8s4r-manager"), s.serviceAccountKubeconfig("k8s4r-server")
	var managers, servers []*program
	for range 2 {
		common := []string{"--leader-elect", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"}
		managers = append(managers, run(t, "k8s4r-manager", append(common, "--kubeconfig", manager)...))
		servers = append(servers, run(t, "k8s4r-server", append(common, "--kubeconfig", server, "--mqtt-url", s.MQTTURL)...))
	}
	agent(t, s, "r1")
	s.awaitRobot("r1", "Online", time.Minute)
	s.create(jobOf("first", 3, shell("say", "echo hi")))
	s.awaitJob("first", "completed", time.Minute)

	t.Run("when both leaders are killed the others go on", func(t *testing.T) {
		s.create(jobOf("second", 4, shell("say", "sleep 2")))
		s.awaitTask("second-main-0-say", "running", time.Minute)
		killLeader(t, managers)
		killLeader(t, servers)
		s.awaitJob("second", "completed", 2*time.Minute)
		s.create(jobOf("third", 1, shell("say", "echo hi")))
		s.awaitJob("third", "completed", time.Minute)
	})
	t.Run("deleting a Job stops its processes", func(t *testing.T) {
		marker := filepath.Join(t.TempDir(), "pid")
		job := jobOf("endless", 1, shell("wait", "echo $$ > "+marker+"; exec sleep 600"))
		s.create(job)
		task := s.awaitTask("endless-main-0-wait", "running", time.Minute)
		s.delete(job)
		s.awaitGone(task, time.Minute)
		testkit.Eventually(t, time.Minute, "the process is gone", func() bool { return !processIn(marker) })
	})
}

func killLeader(t *testing.T, programs []*program) {
	t.Helper()
	leader := slices.IndexFunc(programs, (*program).leads)
	if leader < 0 || programs[1-leader].leads() {
		t.Fatalf("want exactly one leader of two %s", programs[0].Args[0])
	}
	programs[leader].kill()
}

// program is a running one of ours.
type program struct {
	*exec.Cmd
	log string
}

// run starts a program that is killed with the test, and keeps what it said.
func run(t *testing.T, name string, args ...string) *program {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{exec.Command(testkit.Binary(t, name), args...), log.Name()}
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		log.Close()
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(p.Args, " "), lastBytes(p.said(), 16<<10))
		}
	})
	return p
}

func (p *program) kill() {
	p.Process.Kill()
	p.Wait()
}

func (p *program) said() []byte {
	text, _ := os.ReadFile(p.log)
	return text
}

// leads tells whether it has won an election since it started.
func (p *program) leads() bool {
	return bytes.Contains(p.said(), []byte("Successfully acquired lease"))
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// agent starts a robot outside of `k8s4r up`.
func agent(t *testing.T, s *system, id string, args ...string) *program {
	t.Helper()
	return run(t, "k8s4r-agent", append([]string{"--robot-id", id, "--mqtt-url", s.MQTTURL,
		"--state-dir", filepath.Join(s.DataDir, "agents", id)}, args...)...)
}

// serviceAccountKubeconfig gives a token of the account that config/rbac makes.
func (s *system) serviceAccountKubeconfig(name string) string {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "k8s4r-system", Name: name}}
	hour := int64(3600)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}
	if err := s.SubResource("token").Create(context.Background(), account, token); err != nil {
		s.t.Fatalf("token for %s: %v", name, err)
	}
	admin, err := clientcmd.LoadFromFile(s.Kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, user := range admin.AuthInfos {
		*user = clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path := filepath.Join(s.t.TempDir(), name)
	if err := clientcmd.WriteToFile(*admin, path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// processIn tells whether the process whose id stands in the file lives.
func processIn(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	_, err = os.Stat("/proc/" + strings.TrimSpace(string(text)))
	return err == nil
}

func TestRolesHoldNoStar(t *testing.T) {
	s := start(t, "--without", "manager,server,broker,robots")
	out, err := s.kubectl("get", "clusterroles,roles", "-A", "-o", "json")
	if err != nil {
		t.Fatal(err, out)
	}
	var roles struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Rules    []map[string][]string
		}
	}
	if err := json.Unmarshal([]byte(out), &roles); err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, role := range roles.Items {
		if !strings.HasPrefix(role.Metadata.Name, "k8s4r-") {
			continue
		}
		ours++
		for _, rule := range role.Rules {
			if strings.Contains(fmt.Sprint(rule), "*") {
				t.Errorf("%s: %v", role.Metadata.Name, rule)
			}
		}
	}
	if ours < 5 {
		t.Errorf("only %d roles of ours", ours)
	}
}
