package e2e

import (
	"bufio"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// listener keeps the messages of some topics of the broker.
type listener struct {
	mu    sync.Mutex
	heard map[string][]string // payloads by topic
}

// listen subscribes to these topics, retained messages included.
func listen(t *testing.T, mqttURL string, filters ...string) *listener {
	t.Helper()
	l := &listener{heard: map[string][]string{}}
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + hostPort(mqttURL)).SetAutoReconnect(false))
	if token := c.Connect(); !token.WaitTimeout(10*time.Second) || token.Error() != nil {
		t.Fatalf("connect: %v", token.Error())
	}
	t.Cleanup(func() { c.Disconnect(10) })
	for _, filter := range filters {
		if token := c.Subscribe(filter, wire.QoS, l.receive); !token.WaitTimeout(10*time.Second) || token.Error() != nil {
			t.Fatalf("subscribe: %v", token.Error())
		}
	}
	return l
}

func (l *listener) receive(_ mqtt.Client, m mqtt.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard[m.Topic()] = append(l.heard[m.Topic()], string(m.Payload()))
}

// on returns the messages of a topic, in order.
func (l *listener) on(topic string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.heard[topic]...)
}

// last returns the latest message of a topic, or an empty string.
func (l *listener) last(topic string) string {
	if all := l.on(topic); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// dispatches counts the creates of this task that were sent to a robot.
func (l *listener) dispatches(robot, uid string) int {
	return l.countActions(robot, uid, wire.ActionCreate)
}

// deletes counts the deletes of this task that were sent to a robot, whether it received them or not.
func (l *listener) deletes(robot, uid string) int {
	return l.countActions(robot, uid, wire.ActionDelete)
}

func (l *listener) countActions(robot, uid, action string) int {
	n := 0
	for _, payload := range l.on(wire.RobotTopic(robot, wire.KindDispatch)) {
		if d, err := wire.Decode[wire.Dispatch]([]byte(payload)); err == nil && d.Action == action && d.Task.Metadata.UID == uid {
			n++
		}
	}
	return n
}

// sentAgain counts the tasks whose create was sent to a robot more than once.
func (l *listener) sentAgain(robot string) int {
	times, again := map[string]int{}, 0
	for _, payload := range l.on(wire.RobotTopic(robot, wire.KindDispatch)) {
		if d, err := wire.Decode[wire.Dispatch]([]byte(payload)); err == nil && d.Action == wire.ActionCreate {
			if times[d.Task.Metadata.UID]++; times[d.Task.Metadata.UID] == 2 {
				again++
			}
		}
	}
	return again
}

// counted adds up the samples of a metric that have these labels, in the text form of the
// exposition: `kind="heartbeat"`.
func counted(exposition, metric string, labels ...string) int {
	sum := 0
	for lines := bufio.NewScanner(strings.NewReader(exposition)); lines.Scan(); {
		if value, ok := sample(lines.Text(), metric, labels); ok {
			sum += value
		}
	}
	return sum
}

var sampleForm = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)$`)

func sample(line, metric string, labels []string) (int, bool) {
	m := sampleForm.FindStringSubmatch(line)
	if m == nil || m[1] != metric {
		return 0, false
	}
	for _, label := range labels {
		if !strings.Contains(","+m[2]+",", ","+label+",") {
			return 0, false
		}
	}
	value, err := strconv.ParseFloat(m[3], 64)
	return int(value), err == nil
}

// count reads a metric of manager and server, which --metrics-address serves.
func (s *system) count(metric string, labels ...string) int {
	s.t.Helper()
	r, err := http.Get(s.MetricsURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	text := &strings.Builder{}
	if _, err := bufio.NewReader(r.Body).WriteTo(text); err != nil {
		s.t.Fatal(err)
	}
	return counted(text.String(), metric, labels...)
}
