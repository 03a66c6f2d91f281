package acl

import (
	"slices"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const taskUID = "0a1b2c3d-0000-4000-8000-00000000000a"

var allRoles = []Role{Robot, LegacyAgent, Server, Console, Anonymous, Unrestricted, ""}

// exampleTopic fills in a row's placeholders.
func exampleTopic(p Permission, robot string) string {
	return strings.NewReplacer(robotLevel, robot, taskLevel, taskUID, "+", "x").Replace(p.Topic)
}

// The subscriptions that the programs make are those of the table.
func TestTable_CoversTheSubscriptionsOfThePrograms(t *testing.T) {
	for role, want := range map[Role][]string{
		Robot: wire.RobotSubscriptions("r1"), LegacyAgent: wire.RobotSubscriptions("r1"), Server: wire.ServerSubscriptions(), Console: nil,
	} {
		c := Client{Role: role, RobotID: "r1"}
		if got := c.SubscribeFilters(); !slices.Equal(got, want) {
			t.Errorf("%s subscribes to %q, want %q", role, got, want)
		}
		for _, filter := range want {
			if !c.CanSubscribe(filter) {
				t.Errorf("%s cannot subscribe to %s", role, filter)
			}
		}
	}
}

// Whatever the server subscribes to has a parser, and nothing else has.
func TestTable_ServerParsesWhatRobotsPublish(t *testing.T) {
	for _, p := range Table() {
		a, err := wire.ParseTopic(exampleTopic(p, "r1"))
		if received := slices.Contains(p.Subscribe, Server); received != (err == nil) {
			t.Errorf("%s: received by the server: %v, parsed: %v", p.Topic, received, err)
		}
		if shared := !strings.Contains(p.Topic, robotLevel); err == nil && a.Shared != shared {
			t.Errorf("%s is parsed as %+v", p.Topic, a)
		}
	}
}

func TestClient_CanPublishOnlyWhatItsRoleMay(t *testing.T) {
	for _, p := range Table() {
		topic := exampleTopic(p, "r1")
		for _, role := range allRoles {
			c := Client{Role: role, RobotID: "r1"}
			want := slices.Contains(p.Publish, role) || role == Unrestricted || role == Anonymous && !slices.Contains(p.Publish, Console)
			if got := c.CanPublish(topic, false); got != want {
				t.Errorf("%q publishes on %s: %v, want %v", role, topic, got, want)
			}
			wantRetained := want && (p.CanRetain || role == Unrestricted || role == Anonymous)
			if got := c.CanPublish(topic, true); got != wantRetained {
				t.Errorf("%q has a message on %s retained: %v, want %v", role, topic, got, wantRetained)
			}
		}
	}
}

func TestClient_CannotUseTopicsOfAnotherRobot(t *testing.T) {
	for _, p := range Table() {
		if !strings.Contains(p.Topic, robotLevel) {
			continue
		}
		topic := exampleTopic(p, "r2")
		for _, role := range []Role{Robot, LegacyAgent} {
			c := Client{Role: role, RobotID: "r1"}
			if c.CanPublish(topic, false) || c.CanSubscribe(topic) {
				t.Errorf("%s r1 may use %s", role, topic)
			}
		}
	}
}

func TestClient_DeniesTopicsOutsideTheTable(t *testing.T) {
	for _, topic := range []string{
		"k8s4r", "other", "k8s4r/robots/r1", "k8s4r/robots/r1/register/", "k8s4r/robots/r1/register/x", "k8s4r/robots/r1/tasks/dispatch/x",
		"k8s4r/robots/r1/tasks/" + taskUID, "k8s4r/robots/r1/tasks/../status", "/k8s4r/robots/r1/register", "k8s4r/events", "k8s4r/events/ns/jobs", "$SYS/broker/uptime",
	} {
		for _, role := range []Role{Robot, LegacyAgent, Server, Console, ""} {
			if (Client{Role: role, RobotID: "r1"}).CanPublish(topic, false) {
				t.Errorf("%q may publish on %s", role, topic)
			}
		}
	}
}

func TestClient_DeniesFiltersThatMatchMoreThanAllowed(t *testing.T) {
	for _, filter := range []string{"#", "+/#", "k8s4r/#", "k8s4r/robots/+/ack", "k8s4r/robots/r1/#", "k8s4r/robots/r1/+", "k8s4r/robots/r1/tasks/+", "$share/g/k8s4r/robots/r1/ack"} {
		for _, role := range []Role{Robot, LegacyAgent, Server, Console, ""} {
			if (Client{Role: role, RobotID: "r1"}).CanSubscribe(filter) {
				t.Errorf("%q may subscribe to %s", role, filter)
			}
		}
	}
	if !(Client{Role: Server}).CanSubscribe("k8s4r/robots/r1/register") {
		t.Error("a filter that matches less than an allowed one is denied")
	}
}

func TestClient_AnonymousCannotImpersonateAuthenticatedRobots(t *testing.T) {
	c := Client{Role: Anonymous, IsAuthenticated: func(id string) bool { return id == "r1" }}
	for _, p := range Table() {
		if !strings.Contains(p.Topic, robotLevel) {
			continue
		}
		if topic := exampleTopic(p, "r1"); c.CanPublish(topic, false) {
			t.Errorf("may publish on %s", topic)
		}
		if topic := exampleTopic(p, "r2"); !c.CanPublish(topic, false) {
			t.Errorf("may not publish on %s", topic)
		}
	}
	if c.CanPublish("k8s4r/robots/r1/anything", false) {
		t.Error("may publish on an unknown topic of an authenticated robot")
	}
}
