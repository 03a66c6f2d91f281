package gateway

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/limits"
)

// What one robot may send. Messages beyond it are dropped before they are parsed, and robots
// repeat them. It is enough for a thousand tasks that all end, with their logs; the embedded
// broker lets no more than this through.
const (
	messagesPerSecond = 1000
	messagesAtOnce    = 20000
	bytesPerSecond    = 1 << 20
	bytesAtOnce       = 8 << 20
)

// Registrations of one robot. Each causes the robot's list and dispatches to be sent again.
const (
	registrationsPerSecond = 1
	registrationsAtOnce    = 20
)

// Writes of one Robot object, other than of its device.
const (
	robotWritesPerSecond = 1
	robotWritesAtOnce    = 20
	// robotWritePause is how long a write waits that exceeds them.
	robotWritePause = time.Second
)

// deviceWritePeriod is the minimum time between two writes of one robot's deviceInfo.
const deviceWritePeriod = time.Minute

// Writes that the reports of one robot about its tasks may cause, and the bytes of these reports.
// The robots of one namespace together may cause namespaceFactor times that. What is unused in
// quotaPeriod can be used at once.
const (
	reportWritesPerSecond = 20
	reportBytesPerSecond  = 64 << 10
	namespaceFactor       = 10
	quotaPeriod           = 10 * time.Second
)

// progressPerSecond bounds the writes, of all robots together, that only add ends of indexes to ranges
// that run.
const progressPerSecond = 50

// limitName is the label "limit" of k8s4r_server_limit_reached_total.
type limitName string

// The limits, as docs/reference/mqtt.md lists them.
const (
	limitMessages      limitName = "messages"
	limitRegistrations limitName = "registrations"
	limitReports       limitName = "reports"
	limitNamespace     limitName = "namespace"
	limitRobotWrites   limitName = "robot-writes"
	limitDevice        limitName = "device"
)

// limitNotes explain each limit in the event of a Robot.
var limitNotes = map[limitName]string{
	limitMessages:      fmt.Sprintf("The robot sends more than %d messages or %d KiB/s; the others are dropped until it repeats them", messagesPerSecond, bytesPerSecond>>10),
	limitRegistrations: "The robot registers more than once a second; the other registrations are dropped until it repeats them",
	limitReports:       fmt.Sprintf("The robot reports more about its tasks than %d writes or %d KiB/s; its reports are delayed", reportWritesPerSecond, reportBytesPerSecond>>10),
	limitNamespace:     fmt.Sprintf("The robots of the namespace report more about their tasks than %d writes or %d KiB/s together; their reports are delayed", namespaceFactor*reportWritesPerSecond, namespaceFactor*reportBytesPerSecond>>10),
	limitRobotWrites:   "The robot changes its labels, agent or connection more than once a second; the changes are written later",
	limitDevice:        "The robot changes its deviceInfo more than once a minute; the last change is written after the minute",
}

// limitEventPeriod is the minimum time between two events about one limit of one robot, or of one
// namespace.
const limitEventPeriod = 10 * time.Minute

// maxLimitEvents bounds the robots and namespaces whose last event is remembered.
const maxLimitEvents = 16 << 10

// robotLimits are the limits of each robot, except those of its reports.
type robotLimits struct {
	messages, bytes, registrations, robotWrites limits.Limits
}

// newRobotLimits bounds each robot on its own, so that a faulty one does not delay others.
func newRobotLimits() *robotLimits {
	return &robotLimits{
		messages:      limits.Limits{PerSecond: messagesPerSecond, Burst: messagesAtOnce},
		bytes:         limits.Limits{PerSecond: bytesPerSecond, Burst: bytesAtOnce},
		registrations: limits.Limits{PerSecond: registrationsPerSecond, Burst: registrationsAtOnce},
		robotWrites:   limits.Limits{PerSecond: robotWritesPerSecond, Burst: robotWritesAtOnce},
	}
}

// allowMessage reports whether the server handles one more message of a robot.
func (l *robotLimits) allowMessage(robotID string, size int, now time.Time) bool {
	return l.messages.Allow(robotID, now) && l.bytes.AllowN(robotID, now, size)
}

func (l *robotLimits) forgetRobot(robotID string) {
	for _, each := range []*limits.Limits{&l.messages, &l.bytes, &l.registrations, &l.robotWrites} {
		each.Forget(robotID)
	}
}

// reportQuotas bounds the writes that reports cause, by robot and by namespace of the robots.
type reportQuotas struct {
	namespaceOf func(robotID string) string // empty: the robot is unknown

	mu         sync.Mutex
	robots     map[string]*quota
	namespaces map[string]*quota
}

func newReportQuotas(namespaceOf func(string) string) *reportQuotas {
	return &reportQuotas{namespaceOf: namespaceOf, robots: map[string]*quota{}, namespaces: map[string]*quota{}}
}

// takeWrite takes one write of reports with this size from the quotas of a robot and its
// namespace. If one is used up, it takes nothing and returns how long to wait, and for which.
func (q *reportQuotas) takeWrite(robotID string, size int, now time.Time) (wait time.Duration, reached limitName) {
	namespace := q.namespaceOf(robotID)
	if namespace == "" {
		robotID = "" // unknown robots share one quota
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	robot, all := quotaOf(q.robots, robotID, 1), quotaOf(q.namespaces, namespace, namespaceFactor)
	if wait = robot.untilFree(size, now); wait > 0 {
		return wait, limitReports
	}
	if wait = all.untilFree(size, now); wait > 0 {
		return wait, limitNamespace
	}
	robot.take(size, now)
	all.take(size, now)
	return 0, ""
}

func (q *reportQuotas) forgetRobot(robotID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.robots, robotID)
}

// quota has the writes and bytes that may be used.
type quota struct{ writes, bytes *rate.Limiter }

// quotaOf returns the quota of a name, which is created with factor times that of a robot.
func quotaOf(all map[string]*quota, name string, factor int) *quota {
	q := all[name]
	if q == nil {
		q = &quota{writes: newBucket(factor * reportWritesPerSecond), bytes: newBucket(factor * reportBytesPerSecond)}
		all[name] = q
	}
	return q
}

func newBucket(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), perSecond*int(quotaPeriod/time.Second))
}

// untilFree returns how long it takes until a write of this size fits. Zero: it fits now.
func (q *quota) untilFree(size int, now time.Time) time.Duration {
	return max(untilTokens(q.writes, 1, now), untilTokens(q.bytes, size, now))
}

func (q *quota) take(size int, now time.Time) {
	q.writes.AllowN(now, 1)
	q.bytes.AllowN(now, min(size, q.bytes.Burst()))
}

// untilTokens returns how long it takes until a bucket has n tokens, or is full.
func untilTokens(bucket *rate.Limiter, n int, now time.Time) time.Duration {
	missing := float64(min(n, bucket.Burst())) - bucket.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return max(1, time.Duration(missing/float64(bucket.Limit())*float64(time.Second)))
}

// recordLimit counts that a robot has reached a limit, and records an event, rarely.
func (g *Gateway) recordLimit(robotID string, reached limitName) {
	g.m.limitReached.WithLabelValues(string(reached)).Inc()
	r := g.objects.robot(robotID)
	if r == nil {
		return
	}
	name := "robot/" + robotID
	if reached == limitNamespace {
		name = "namespace/" + r.Namespace
	}
	if g.limitEvents.Allow(string(reached)+"/"+name, g.now()) {
		g.warn(r, robotv1.ReasonRateLimited, limitNotes[reached])
	}
}

// namespaceOfRobot returns the namespace of a Robot. Empty: there is none.
func (g *Gateway) namespaceOfRobot(robotID string) string {
	if r := g.objects.robot(robotID); r != nil {
		return r.Namespace
	}
	return ""
}
