package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

var agentLine = regexp.MustCompile(`k8s4r-agent (--server=\S+) (--token=\S+) (--ca-hash=\S+)`)

// token creates a join token, and returns the agent flags that the command prints.
func (s *system) token(flags ...string) []string {
	s.t.Helper()
	out, err := s.RunProgram("k8s4r", append([]string{"token", "create"}, flags...)...)
	m := agentLine.FindStringSubmatch(out)
	if err != nil || m == nil {
		s.t.Fatalf("token create: %v\n%s", err, out)
	}
	return m[1:]
}

// joins starts an agent with these flags and its own state directory.
func (s *system) joins(id, state string, flags []string) *program {
	s.t.Helper()
	return run(s.t, "k8s4r-agent", append([]string{"--robot-id", id, "--state-dir", state, "--heartbeat", "2s"}, flags...)...)
}

// k8s4r runs a verb that must succeed.
func (s *system) k8s4r(args ...string) string {
	s.t.Helper()
	out, err := s.RunProgram("k8s4r", args...)
	if err != nil {
		s.t.Fatalf("k8s4r %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p *program) awaitSays(t *testing.T, within time.Duration, text string) {
	t.Helper()
	testkit.Eventually(t, within, "the agent says "+text, func() bool { return strings.Contains(string(p.ReadLog()), text) })
}

func TestIdentity_JoinRenewRevoke(t *testing.T) {
	s := start(t, "--robots", "0", "--without", "node", "--robot-certificate-duration", "15s")
	state := t.TempDir()
	flags := s.token("--labels", "site=hall")
	r1 := s.joins("r1", state, flags)
	s.awaitRobot("r1", "Online", time.Minute)
	robot := s.robot("r1")
	if robot.Spec.Labels["site"] != "hall" || !meta.IsStatusConditionTrue(robot.Status.Conditions, v1alpha1.ConditionIdentity) {
		t.Errorf("%+v", robot)
	}
	if info, err := os.Stat(filepath.Join(state, "identity", "key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	s.create(jobOf("hello", 1, shell("say", "echo hello")))
	s.awaitJob("hello", "completed", time.Minute)

	first := robot.Status.Identity.Certificate.SerialNumber
	testkit.Eventually(t, time.Minute, "the robot renews twice", func() bool {
		return strings.Count(string(r1.ReadLog()), "the robot has a certificate") >= 3
	})
	if now := s.robot("r1").Status.Identity.Certificate.SerialNumber; now == first {
		t.Error("the same certificate is written down")
	}
	s.create(jobOf("again", 1, shell("say", "echo again")))
	s.awaitJob("again", "completed", time.Minute)

	s.k8s4r("robot", "revoke", "r1", "--reason", "it was stolen")
	r1.awaitSays(t, 5*time.Second, "it was stolen")
	s.k8s4r("robot", "approve", "r1")
	testkit.Eventually(t, 2*time.Minute, "an approved robot is back", func() bool {
		said := string(r1.ReadLog())
		return strings.Contains(said[strings.LastIndex(said, "it was stolen"):], "msg=registered")
	})
}

func TestIdentity_TokenAdmitsOnlyItsRobots(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node")
	once := s.token("--robots", "r*")
	wrong := s.token()
	wrong[1] = "--token=abcdef.0123456789abcdef"
	foreign := s.token()
	foreign[2] = "--ca-hash=sha256:" + strings.Repeat("0", 64)
	s.joins("r1", t.TempDir(), once)
	s.awaitRobot("r1", "Online", time.Minute)
	for _, row := range []struct {
		id    string
		flags []string
		says  string
	}{
		{"x1", once, "admits robots whose id matches r*, not x1"},
		{"r2", once, "is used up: it allows 1 uses; create another with `k8s4r token create`"},
		{"r3", wrong, "unknown join token, or wrong secret"},
		{"r4", s.token("--ttl", "1ms"), "expired at"},
		{"r5", foreign, "--ca-hash does not match"},
	} {
		s.joins(row.id, t.TempDir(), row.flags).awaitSays(t, 30*time.Second, row.says)
		robots := &v1alpha1.RobotList{}
		if err := s.List(context.Background(), robots); err != nil || len(robots.Items) != 1 {
			t.Errorf("%s: there are %d robots, %v", row.id, len(robots.Items), err)
		}
	}
	if out := s.k8s4r("token", "list"); strings.Count(out, "\n") != 5 || !strings.Contains(out, "1/1") || !strings.Contains(out, "expired") {
		t.Errorf("token list:\n%s", out)
	}
}

func TestIdentity_RejectsAnotherKey(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node")
	flags := s.token("--uses", "3")
	first := s.joins("r1", t.TempDir(), flags)
	s.awaitRobot("r1", "Online", time.Minute)
	second := s.joins("r1", t.TempDir(), flags) // the same machine, with nothing of what it was
	second.awaitSays(t, 30*time.Second, "robot r1 has another key")
	testkit.EventuallyNoError(t, 30*time.Second, "the robot is disputed, and still there", func() error {
		r := s.robot("r1")
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionIdentityConflict)
		if c == nil || c.Reason != v1alpha1.ReasonReimaged || r.Status.Phase != "Online" {
			return fmt.Errorf("%s, %+v", r.Status.Phase, c)
		}
		return s.hasEvent("r1", v1alpha1.ReasonReimaged)
	})
	if out, err := s.RunProgram("k8s4r", "robot", "approve", "r1"); err == nil || !strings.Contains(out, "the key must be given with --key") {
		t.Errorf("approve without --key: %v\n%s", err, out)
	}
	asks := s.robot("r1").Status.Identity.Requested
	if !strings.Contains(string(second.ReadLog()), "key="+asks.Key) {
		t.Errorf("the agent does not say its key, %s", asks.Key)
	}
	s.k8s4r("robot", "approve", "r1", "--key", asks.Key, "--machine", asks.Machine)
	second.awaitSays(t, 90*time.Second, "msg=registered")
	first.awaitSays(t, 30*time.Second, "robot r1 has another key")
}

// TestIdentity_RejectsAClonedMachine starts a copy of the robot's disk on another machine, with
// key and certificate, and one without them that has a token.
func TestIdentity_RejectsAClonedMachine(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("only root can give an agent another machine's id: run the tests as root")
	}
	s := start(t, "--robots", "0", "--without", "node", "--robot-certificate-duration", "30s")
	state, image := t.TempDir(), t.TempDir()
	flags := s.token("--uses", "2")
	s.startOnMachine("the robot's own", "r1", state, flags)
	s.awaitRobot("r1", "Online", time.Minute)
	if err := os.CopyFS(image, os.DirFS(filepath.Join(state, "identity"))); err != nil {
		t.Fatal(err)
	}
	blank, copied := t.TempDir(), t.TempDir()
	if err := os.Rename(image, filepath.Join(copied, "identity")); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ state, says string }{
		"a blank one": {blank, "robot r1 is another machine; use another --robot-id"},
		"a copy":      {copied, "was copied from another machine; remove that directory, and let this machine join as a robot of its own"},
	} {
		p := s.startOnMachine(name, "r1", row.state, flags)
		p.awaitSays(t, 30*time.Second, row.says)
		p.Kill()
	}
	testkit.EventuallyNoError(t, 30*time.Second, "an event reports the clone", func() error {
		// The robot may have renewed its certificate since, which settles it; the event stays.
		if c := meta.FindStatusCondition(s.robot("r1").Status.Conditions, v1alpha1.ConditionIdentityConflict); c == nil || c.Reason != v1alpha1.ReasonCloned && c.Reason != v1alpha1.ReasonNoConflict {
			return fmt.Errorf("%+v", c)
		}
		return s.hasEvent("r1", v1alpha1.ReasonCloned)
	})
	s.awaitRobot("r1", "Online", time.Minute)
}

// startOnMachine starts an agent with this machine id.
func (s *system) startOnMachine(machine, id, state string, flags []string) *program {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "machine-id")
	if err := os.WriteFile(name, []byte(machine+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	args := append([]string{
		"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/machine-id && exec "$@"`, name,
		testkit.BinaryPath(s.t, "k8s4r-agent"), "--robot-id", id, "--state-dir", state, "--heartbeat", "2s",
	}, flags...)
	p := testkit.NewProcess(s.t, args...)
	p.Start()
	return &program{p}
}

// hasEvent returns an error unless there is an event of that reason about a robot.
func (s *system) hasEvent(robot, reason string) error {
	s.t.Helper()
	events := &corev1.EventList{}
	if err := s.List(context.Background(), events, client.InNamespace("default")); err != nil {
		return err
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Name == robot && e.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("no event %s about %s", reason, robot)
}

// proof returns the key and certificate of the agent in a state directory.
func proof(t *testing.T, state string) *tls.Config {
	t.Helper()
	file := func(name string) string { return filepath.Join(state, "identity", name) }
	pair, err := tls.LoadX509KeyPair(file("certificate.pem"), file("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(file("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}
}

// TestIdentity_RobotCannotImpersonateAnother has an attacker with the key and
// certificate of r1.
func TestIdentity_RobotCannotImpersonateAnother(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node", "--metrics-address", "127.0.0.1:0")
	state := t.TempDir()
	flags := s.token("--uses", "2")
	r1 := s.joins("r1", state, flags)
	s.joins("r2", t.TempDir(), flags)
	s.awaitRobot("r1", "Online", time.Minute)
	s.awaitRobot("r2", "Online", time.Minute)
	r1.Kill()

	address := "ssl://" + strings.TrimPrefix(s.MQTTSURL, "mqtts://")
	options := func(id string) *mqtt.ClientOptions {
		return mqtt.NewClientOptions().AddBroker(address).SetTLSConfig(proof(t, state)).SetClientID(id).SetAutoReconnect(false).SetConnectTimeout(10 * time.Second)
	}
	connects := func(o *mqtt.ClientOptions) (mqtt.Client, error) {
		c := mqtt.NewClient(o)
		token := c.Connect()
		if !token.WaitTimeout(30 * time.Second) {
			t.Fatal("no answer to CONNECT")
		}
		return c, token.Error()
	}
	r2Topics := []string{
		wire.RobotTopic("r2", wire.KindRegister), wire.RobotTopic("r2", wire.KindHeartbeat), wire.RobotTopic("r2", wire.KindPresence),
		wire.RobotTopic("r2", wire.KindDispatch), wire.RobotTopic("r2", wire.KindState), wire.RobotTopic("r2", wire.KindAck),
		wire.TaskTopic("r2", "uid", wire.KindStatus), wire.TaskTopic("r2", "uid", wire.KindLogs), wire.TopicRegister, wire.TopicHeartbeat,
	}
	for _, id := range []string{"r2", "k8s4r-server", "k8s4r-agent-r2", "k8s4r-agent-r1", "unknown"} {
		if c, err := connects(options(id)); err == nil {
			t.Errorf("r1 connects as %s", id)
			c.Disconnect(0)
		}
	}
	for _, topic := range r2Topics {
		if c, err := connects(options("r1").SetWill(topic, `{"graceful":true}`, 1, false)); err == nil {
			t.Errorf("r1 has a will on %s", topic)
			c.Disconnect(0)
		}
		c, err := connects(options("r1"))
		if err != nil {
			t.Fatal(err)
		}
		c.Publish(topic, 1, true, `{"robotId":"r2","graceful":true}`).WaitTimeout(time.Second) // how it is refused is the broker's business
		c.Disconnect(0)
	}
	for _, filter := range append(r2Topics, "#", "k8s4r/robots/+/tasks/dispatch", "k8s4r/robots/#") {
		c, err := connects(options("r1"))
		if err != nil {
			t.Fatal(err)
		}
		token := c.Subscribe(filter, 1, nil)
		token.WaitTimeout(30 * time.Second)
		granted, _ := token.(*mqtt.SubscribeToken)
		if token.Error() == nil && granted.Result()[filter] < 0x80 {
			t.Errorf("r1 may subscribe to %s", filter)
		}
		c.Disconnect(0)
	}
	c, err := connects(options("r1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Disconnect(0)
	if token := c.Publish(wire.RobotTopic("r1", wire.KindHeartbeat), 1, false, `{"robotId":"r2"}`); !token.WaitTimeout(30*time.Second) || token.Error() != nil {
		t.Fatalf("publish: %v", token.Error())
	}
	testkit.EventuallyNoError(t, 30*time.Second, "the impersonation is counted and reported", func() error {
		if s.count("k8s4r_server_dropped_messages_total", `reason="impersonation"`) == 0 {
			return errors.New("it is not counted")
		}
		return s.hasEvent("r1", "ImpersonationRefused")
	})
	if r2 := s.robot("r2"); !meta.IsStatusConditionTrue(r2.Status.Conditions, v1alpha1.ConditionConnected) || r2.Status.Phase != "Online" {
		t.Errorf("r2 has become %+v", r2.Status)
	}
}
