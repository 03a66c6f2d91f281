package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func (l *Connection) publishRegistration(ctx context.Context, device wire.DeviceInfo, p *policy.Policy) {
	r := l.config.Registration
	r.Address, r.DeviceInfo, r.Policy, r.ConnectionID = l.address, &device, p, l.currentConnectionID()
	r.Local, r.Prefetch = l.config.ReadLocal().WithinLimits(), l.config.ReadPrefetch()
	r.UpdatesItself, r.AgentUpdate = l.config.ReadUpdate()
	l.logSendError(l.publishRobotMessage(ctx, wire.KindRegister, r))
}

// publishHeartbeat sends the device only if more of it changed than uptime and usage.
func (l *Connection) publishHeartbeat(ctx context.Context, device wire.DeviceInfo) {
	l.heartbeatSeq++
	l.config.OnHeartbeat(l.heartbeatSeq)
	h := wire.Heartbeat{Seq: l.heartbeatSeq, Usage: l.config.ReadUsage(ctx)}
	h.DiskPressure, h.JournalReadOnly = l.config.ReadDiskHealth()
	if l.deviceChanges.shouldSend(l.heartbeatSeq, device) {
		h.DeviceInfo = &device
	}
	l.logSendError(l.publishRobotMessage(ctx, wire.KindHeartbeat, h))
}

func (l *Connection) logSendError(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.Warn("message not sent", "error", err)
	}
}

// PublishStatus sends a report about an attempt, and returns once it is written to the
// connection.
func (l *Connection) PublishStatus(ctx context.Context, s wire.Status) error {
	topic := wire.TaskTopic(l.config.RobotID, s.TaskUID, wire.KindStatus)
	return l.publishTraced(ctx, s.Traceparent, wire.KindStatus, topic, s, paho.PublishMethod_AsyncSend)
}

// PublishJournal sends a page of the agent's journal.
func (l *Connection) PublishJournal(ctx context.Context, page wire.Journal) error {
	return l.publishRobotMessage(ctx, wire.KindHeartbeat, wire.Heartbeat{Journal: &page})
}

// PublishLogs sends a part of a task's log, of KindLogs or KindRuns.
func (l *Connection) PublishLogs(ctx context.Context, uid string, k wire.Kind, m wire.Logs) error {
	return l.publishMessage(ctx, k, wire.TaskTopic(l.config.RobotID, uid, k), m, paho.PublishMethod_AsyncSend)
}

// publishRobotMessage sends a message about the robot itself.
func (l *Connection) publishRobotMessage(ctx context.Context, k wire.Kind, v any) error {
	return l.publishMessage(ctx, k, wire.RobotTopic(l.config.RobotID, k), v, paho.PublishMethod_AsyncSend)
}

// PublishOffline notifies the server that the agent stops on purpose, and blocks until the
// broker has acknowledged it.
func (l *Connection) PublishOffline(ctx context.Context) error {
	topic := wire.RobotTopic(l.config.RobotID, wire.KindPresence)
	return l.publishMessage(ctx, wire.KindPresence, topic, wire.Presence{Graceful: true, ConnectionID: l.currentConnectionID()}, paho.PublishMethod_Blocking)
}

func (l *Connection) publishMessage(ctx context.Context, k wire.Kind, topic string, v any, how paho.PublishMethod) error {
	return l.publishTraced(ctx, "", k, topic, v, how)
}

// publishTraced sends a message that belongs to a trace. If trace is empty, it belongs to none.
func (l *Connection) publishTraced(ctx context.Context, trace string, k wire.Kind, topic string, v any, how paho.PublishMethod) error {
	l.mu.Lock()
	client := l.client
	l.mu.Unlock()
	if client == nil {
		return ErrDisconnected
	}
	payload, err := wire.Encode(v)
	if err != nil {
		return err
	}
	message := &paho.Publish{
		Topic: topic, QoS: wire.QoS, Payload: payload,
		Properties: &paho.PublishProperties{MessageExpiry: k.MessageExpiry()},
	}
	if trace != "" {
		message.Properties.User.Add(traceparent.Property, trace)
	}
	if _, err := client.PublishWithOptions(ctx, message, paho.PublishOptions{Method: how}); err != nil {
		return fmt.Errorf("MQTT publish: %w", err)
	}
	return nil
}
