package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

// Messages that are repeated expire at the broker before the next repetition, and
// messages that are sent once are kept.
func TestMessages_ExpireAtTheBroker(t *testing.T) {
	t.Parallel()
	for _, broker := range brokers {
		t.Run(broker.name, func(t *testing.T) {
			t.Parallel()
			s := startLegacy(t, append(broker.args(t), "--robots", "0")...)
			lives := lifetimes(t, s.MQTTURL)
			s.robotWith("r1", nil)
			startAgent := agent
			if s.JoinURL == "" {
				startAgent = anonymousAgent
			}
			startAgent(t, s, "r1", "--heartbeat", "1s")
			s.create(taskOn("r1", "seen"))
			task := s.awaitTask("seen", "completed", 30*time.Second)
			robot := func(k wire.Kind) string { return wire.RobotTopic("r1", k) }
			for topic, expires := range map[string]bool{
				robot(wire.KindRegister):                                true,
				robot(wire.KindResponse):                                true,
				robot(wire.KindHeartbeat):                               true,
				robot(wire.KindAck):                                     true,
				robot(wire.KindDispatch):                                true,
				robot(wire.KindState):                                   false,
				wire.TaskTopic("r1", string(task.UID), wire.KindStatus): true,
			} {
				testkit.Eventually(t, 10*time.Second, "a message is published on "+topic, func() bool { return len(lives(topic)) > 0 })
				for _, life := range lives(topic) {
					if expires && (life <= 0 || life > wire.MaxRepeatInterval) || !expires && life != 0 {
						t.Errorf("%s: a message lives %s at the broker (0: forever)", topic, life)
					}
				}
			}
		})
	}
}

// lifetimes subscribes to all topics, and returns how long the broker would keep
// each message of a topic. Zero means forever.
func lifetimes(t *testing.T, mqttURL string) func(topic string) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	heard := map[string][]time.Duration{}
	conn, err := net.Dial("tcp", hostPort(mqttURL))
	if err != nil {
		t.Fatal(err)
	}
	c := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
		func(p paho.PublishReceived) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			life := time.Duration(0)
			if e := p.Packet.Properties.MessageExpiry; e != nil {
				life = time.Duration(*e) * time.Second
			}
			heard[p.Packet.Topic] = append(heard[p.Packet.Topic], life)
			return true, nil
		},
	}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.Connect(ctx, &paho.Connect{ClientID: "lifetimes", CleanStart: true, KeepAlive: 60}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	all := &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "k8s4r/#", QoS: wire.QoS}}}
	if _, err := c.Subscribe(ctx, all); err != nil {
		t.Fatal(err)
	}
	return func(topic string) []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return append([]time.Duration(nil), heard[topic]...)
	}
}
