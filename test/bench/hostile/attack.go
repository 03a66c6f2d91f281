package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	hostileID = "hostile"
	// hostileTasks run on the hostile robot, so that its reports are about tasks of its own.
	hostileTasks = 16
)

// attack is the hostile robot: it has a certificate and sends as fast as it can.
type attack struct {
	t       testing.TB
	fleet   *fleet
	conn    net.Conn
	wg      sync.WaitGroup
	isOver  atomic.Bool
	serial  atomic.Uint64
	before  int // writes of its tasks
	sent    sent
	writing sync.Mutex // held during a write of a packet; guards sent
	uids    []string   // of its tasks
}

// sent counts what the hostile robot has sent, and the status writes of its tasks.
type sent struct {
	messages, bytes int64
	writes          int
}

// attackers is what all rounds share: the hostile robot's certificate, and its tasks, which never end
// and of which it cannot hold more than those of a few rounds.
var attackers struct {
	sync.Mutex
	credentials *tls.Config
	uids        []string
}

// startAttack connects the hostile robot and starts its floods.
func (f *fleet) startAttack() *attack {
	a := &attack{t: f.t, fleet: f}
	a.connect()
	a.wg.Go(a.readPackets)
	a.publish(wire.RobotTopic(hostileID, wire.KindRegister), wire.Register{RobotID: hostileID, AnswersDispatches: true, DeviceInfo: a.newDevice()})
	a.ensureTasks()
	a.before = f.countHostileWrites()
	for _, flood := range []func(){a.sendReport, a.sendEndOfForeignTask, a.sendHeartbeat, a.sendRegistration, a.sendLog} {
		a.wg.Go(func() {
			for !a.isOver.Load() {
				flood()
			}
		})
	}
	return a
}

// stop ends the attack, and returns what it has sent.
func (a *attack) stop() sent {
	a.isOver.Store(true)
	_ = a.conn.Close()
	a.wg.Wait()
	a.sent.writes = a.fleet.countHostileWrites() - a.before
	return a.sent
}

func (a *attack) connect() {
	attackers.Lock()
	defer attackers.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if attackers.credentials == nil {
		credentials, err := testkit.JoinRobot(ctx, a.fleet, hostileID)
		if err != nil {
			a.t.Fatal(err)
		}
		attackers.credentials = credentials
	}
	u, err := url.Parse(a.fleet.mqttURL)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.conn, err = (&tls.Dialer{Config: attackers.credentials}).DialContext(ctx, "tcp", u.Host); err != nil {
		a.t.Fatal(err)
	}
	a.write(&packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: hostileID, CleanStart: true, KeepAlive: 60, Properties: &packets.Properties{}})
	if p, err := packets.ReadPacket(a.conn); err != nil || p.Type != packets.CONNACK || p.Content.(*packets.Connack).ReasonCode != 0 {
		a.t.Fatalf("the hostile robot cannot connect: %v, %v", p, err)
	}
	filters := &packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}}
	for _, topic := range wire.RobotSubscriptions(hostileID) {
		filters.Subscriptions = append(filters.Subscriptions, packets.SubOptions{Topic: topic, QoS: 1})
	}
	a.write(filters)
}

// ensureTasks gives the hostile robot tasks in the first round, and waits until they are dispatched.
func (a *attack) ensureTasks() {
	attackers.Lock()
	defer attackers.Unlock()
	ctx := context.Background()
	for i := len(attackers.uids); i < hostileTasks; i++ {
		task := newTask(fmt.Sprintf("hostile-%d", i), hostileID)
		if err := a.fleet.Create(ctx, task); err != nil {
			a.t.Fatal(err)
		}
		attackers.uids = append(attackers.uids, string(task.UID))
		testkit.EventuallyNoError(a.t, waitTimeout, "task "+task.Name+" is dispatched", func() error {
			if err := a.fleet.Get(ctx, client.ObjectKeyFromObject(task), task); err != nil {
				return err
			}
			if state := lifecycle.TaskState(task.Status.State); state != lifecycle.TaskDispatching {
				return fmt.Errorf("it is %q: %s", state, task.Status.Message)
			}
			return nil
		})
	}
	a.uids = attackers.uids
}

// readPackets acknowledges messages, so that the broker continues to send them.
func (a *attack) readPackets() {
	for {
		p, err := packets.ReadPacket(a.conn)
		if err != nil {
			return
		}
		if m, ok := p.Content.(*packets.Publish); ok && m.QoS > 0 {
			a.write(&packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}})
		}
	}
}

// write writes a packet as a whole, and counts it. It blocks while the broker does not read.
func (a *attack) write(p io.WriterTo) {
	var whole bytes.Buffer
	if _, err := p.WriteTo(&whole); err != nil {
		a.t.Error(err)
		return
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if n, err := a.conn.Write(whole.Bytes()); err == nil {
		a.sent.messages++
		a.sent.bytes += int64(n)
	} else if !a.isOver.Load() {
		a.t.Errorf("the hostile robot was disconnected: %v", err)
		a.isOver.Store(true)
	}
}

// publish sends a message.
func (a *attack) publish(topic string, message any) {
	payload, err := wire.Encode(message)
	if err != nil {
		a.t.Error(err)
		return
	}
	id := uint16(a.serial.Add(1)) | 1 // not zero; the broker does not compare them
	a.write(&packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: payload, Properties: &packets.Properties{}})
}

// nextTask returns the UID of one of its tasks, and the number of the message.
func (a *attack) nextTask() (uid string, n uint64) {
	n = a.serial.Add(1)
	return a.uids[n%uint64(len(a.uids))], n
}

// sendReport reports one of its tasks as running, with another event each time, which is a write.
func (a *attack) sendReport() {
	uid, n := a.nextTask()
	s := wire.Status{TaskUID: uid, RobotName: hostileID, State: wire.ReportRunning, Attempt: 1, Seq: n, Event: fmt.Sprint("Event", n), Message: newText(2 << 10), UpdatedAt: time.Now()}
	a.publish(wire.TaskTopic(hostileID, uid, wire.KindStatus), s)
}

// sendEndOfForeignTask reports the end of a task that is not its own.
func (a *attack) sendEndOfForeignTask() {
	n := a.serial.Add(1)
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012x", n)
	a.publish(wire.TaskTopic(hostileID, uid, wire.KindStatus), wire.Status{TaskUID: uid, RobotName: hostileID, State: wire.ReportCompleted, Attempt: 1, Seq: 1, UpdatedAt: time.Now()})
}

// sendHeartbeat sends a heartbeat with a device that differs each time.
func (a *attack) sendHeartbeat() {
	a.publish(wire.RobotTopic(hostileID, wire.KindHeartbeat), wire.Heartbeat{RobotID: hostileID, Seq: a.serial.Add(1), DeviceInfo: a.newDevice()})
}

// sendRegistration registers with another label each time.
func (a *attack) sendRegistration() {
	label := fmt.Sprint("v", a.serial.Add(1))
	a.publish(wire.RobotTopic(hostileID, wire.KindRegister), wire.Register{
		RobotID: hostileID, AnswersDispatches: true, AgentVersion: label, Labels: map[string]string{"changes": label}, DeviceInfo: a.newDevice(),
	})
}

// sendLog sends output of one of its tasks that cannot be compressed.
func (a *attack) sendLog() {
	uid, n := a.nextTask()
	data := append([]byte(newText(32<<10-1)), '\n')
	a.publish(wire.TaskTopic(hostileID, uid, wire.KindLogs), wire.Logs{Attempt: 1, Seq: n, Offset: int64(n) << 15, Lost: int64(n) << 15, Data: data})
}

// newDevice returns a device with long lists that no other call has returned.
func (a *attack) newDevice() *wire.DeviceInfo {
	d := &wire.DeviceInfo{Hostname: fmt.Sprint("host-", a.serial.Add(1))}
	for i := range 200 {
		d.NetworkInterfaces = append(d.NetworkInterfaces, wire.NetworkInterface{Name: fmt.Sprint("veth", i), HardwareAddr: newText(64), Addresses: []string{newText(64), newText(64)}})
	}
	return d
}

// newText returns random text of n bytes.
func newText(n int) string {
	text := rand.Text()
	for len(text) < n {
		text += text
	}
	return text[:n]
}
