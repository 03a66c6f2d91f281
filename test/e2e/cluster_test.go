package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestPrograms_WorkWithTheirRolesAlone runs the programs as a cluster does: two
// managers and two servers, each with the permissions in config/rbac alone,
// against an API server that has had `kubectl apply --server-side -k config`.
func TestPrograms_WorkWithTheirRolesAlone(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "manager,server,broker,robots,node")
	broker := testkit.NewSecureMosquitto(t)
	if out, err := s.kubectl("apply", "--server-side", "--field-manager=k8s4r", "-k", "../../config"); err != nil {
		t.Fatalf("apply config: %v\n%s", err, out)
	}
	manager, server := s.serviceAccountKubeconfig("k8s4r-manager"), s.serviceAccountKubeconfig("k8s4r-server")
	crl := filepath.Join(t.TempDir(), "robots.crl")
	var managers, servers []*observed
	for i := range 2 {
		managers = append(managers, observe(t, "k8s4r-manager", i == 1, "--kubeconfig", manager, "--webhook-bind-address", "127.0.0.1:0", "--api-bind-address=127.0.0.1:0",
			"--archive", "sqlite:"+filepath.Join(s.DataDir, "archive-of-managers")))
		servers = append(servers, observe(t, "k8s4r-server", i == 0, append(broker.ServerFlags(broker.Addr), "--kubeconfig", server, "--robot-crl-file", crl,
			"--log-dir", filepath.Join(s.DataDir, "logs-of-servers"))...))
	}
	testkit.EventuallyNoError(t, time.Minute, "the manager registers its webhook's authority", func() error {
		out, err := s.kubectl("get", "validatingwebhookconfiguration", "k8s4r-jobflows", "-o", "jsonpath={.webhooks[*].clientConfig.caBundle}")
		if err == nil && len(strings.Fields(out)) != 3 { // one for each webhook of config/webhook/registration.yaml
			err = errors.New("not all webhooks have one: " + out)
		}
		return err
	})
	agent(t, s, "r1")
	s.awaitRobot("r1", "Online", time.Minute)
	s.create(jobOf("first", 3, shell("say", "echo hi")))
	s.awaitJob("first", "completed", time.Minute)
	testkit.EventuallyNoError(t, 10*time.Second, "the server serves logs", func() error {
		out, err := s.RunProgram("kubectl-k8s4r", "logs", "first-main-0-say")
		if err != nil || !strings.Contains(out, "task changed state") {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})

	t.Run("they say how they are", func(t *testing.T) {
		checkHealthReports(t, managers, "[+]archive ok")
		checkHealthReports(t, servers, "[+]mqtt ok")
	})
	t.Run("metrics and profiles are for those who may", func(t *testing.T) {
		profilesNeedRights(t, s, managers[0], managers[1])
	})
	t.Run("the server reads a namespace's Secrets when it is permitted to", func(t *testing.T) {
		seen := filepath.Join(t.TempDir(), "seen")
		s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "hunter2"}})
		s.create(needy("needy", seen))
		s.awaitTask("needy-main-0-write", "dispatching", time.Minute)
		var says string
		testkit.Eventually(t, time.Minute, "the task says what it waits for", func() bool {
			says = s.waitsFor("needy-main-0-write")
			return says != ""
		})
		_, command, found := strings.Cut(says, "to allow it, run: kubectl ")
		command, _, closed := strings.Cut(command, " (")
		if !found || !closed {
			t.Fatalf("it says %s", says)
		}
		if out, err := s.kubectl(strings.Fields(command)...); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		s.awaitJob("needy", "completed", time.Minute)
		if got, err := os.ReadFile(seen); err != nil || string(got) != "hunter2" {
			t.Errorf("the task has seen %q, %v", got, err)
		}
	})
	t.Run("when both leaders are killed the others go on", func(t *testing.T) {
		hold := s.file("hold")
		s.hold(hold)
		s.create(jobOf("second", 4, shell("say", while(hold))))
		s.awaitTask("second-main-0-say", "running", time.Minute)
		killLeader(t, managers)
		killLeader(t, servers)
		os.Remove(hold)
		s.awaitJob("second", "completed", 2*time.Minute)
		s.create(jobOf("third", 1, shell("say", "echo hi")))
		s.awaitJob("third", "completed", time.Minute)
	})
	t.Run("the certificates of a revoked robot are on the revocation list", func(t *testing.T) {
		if _, err := listRevoked(crl); err != nil {
			t.Error(err)
		}
		agent(t, s, "stolen")
		s.awaitRobot("stolen", "Online", time.Minute)
		serial := s.robot("stolen").Status.Identity.Certificate.SerialNumber
		s.k8s4r("robot", "revoke", "stolen")
		testkit.EventuallyNoError(t, time.Minute, "the list has its certificate", func() error {
			revoked, err := listRevoked(crl)
			if err == nil && !slices.Equal(revoked, []string{serial}) {
				err = fmt.Errorf("%q, want %s", revoked, serial)
			}
			return err
		})
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

// listRevoked returns the serial numbers in a revocation list.
func listRevoked(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not PEM", file)
	}
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil {
		return nil, err
	}
	var serials []string
	for _, e := range list.RevokedCertificateEntries {
		serials = append(serials, e.SerialNumber.Text(16))
	}
	return serials, nil
}

func killLeader(t *testing.T, programs []*observed) {
	t.Helper()
	leader := slices.IndexFunc(programs, (*observed).leads)
	if leader < 0 || programs[1-leader].leads() {
		t.Fatalf("want exactly one leader of two %s", programs[0].Args[0])
	}
	programs[leader].Kill()
}

// program is a running one of ours.
type program struct{ *testkit.Process }

// run starts a program that is killed with the test, and keeps its output.
func run(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := testkit.NewProcess(t, append([]string{testkit.BinaryPath(t, name)}, args...)...)
	p.Start()
	return &program{p}
}

// runControl runs a manager and a server, which has these flags for its broker. The flags in args
// are for both.
func runControl(t *testing.T, s *system, broker []string, args ...string) []*program {
	t.Helper()
	common := append([]string{"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"}, args...)
	manager := append([]string{"--kubeconfig", s.KubeconfigOf("k8s4r-manager"), "--api-bind-address=127.0.0.1:0"}, common...)
	return []*program{run(t, "k8s4r-manager", manager...), run(t, "k8s4r-server", slices.Concat([]string{"--kubeconfig", s.Kubeconfig}, common, broker, []string{"--log-dir="})...)}
}

// leads reports whether the program has been elected leader since it started.
func (p *program) leads() bool {
	return bytes.Contains(p.ReadLog(), []byte("Successfully acquired lease"))
}

// agent starts a robot outside of `k8s4r up`, which joins unless it has done so before.
func agent(t *testing.T, s *system, id string, args ...string) *program {
	t.Helper()
	return runAgent(t, s, id, append(testkit.JoinFlags(t, s, "default", id), args...))
}

// anonymousAgent starts a robot without a certificate.
func anonymousAgent(t *testing.T, s *system, id string, args ...string) *program {
	t.Helper()
	return runAgent(t, s, id, append([]string{"--mqtt-url", s.MQTTURL}, args...))
}

func runAgent(t *testing.T, s *system, id string, args []string) *program {
	t.Helper()
	return run(t, "k8s4r-agent", append([]string{"--robot-id", id, "--state-dir", stateDir(s, id)}, args...)...)
}

// stateDir returns the state directory of a robot outside of `k8s4r up`.
func stateDir(s *system, id string) string { return filepath.Join(s.DataDir, "agents", id) }

// serviceAccountKubeconfig writes a kubeconfig with a token of a service account of config/rbac.
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

// processIn reports whether the process whose ID is in the file is running.
func processIn(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	_, err = os.Stat("/proc/" + strings.TrimSpace(string(text)))
	return err == nil
}

func TestRoles_HaveNoWildcards(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "manager,server,broker,robots,node,console")
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
