package wire

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const uuid = "0a1b2c3d-0000-4000-8000-00000000000a"

func TestParseTopic(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	tests := []struct {
		name  string
		topic string
		want  Address
		bad   bool
	}{
		{name: "a legacy agent's registration names no robot", topic: "k8s4r/register", want: Address{Shared: true, Kind: KindRegister}},
		{name: "nor does its heartbeat", topic: "k8s4r/heartbeat", want: Address{Shared: true, Kind: KindHeartbeat}},
		{name: "registration", topic: "k8s4r/robots/r1/register", want: Address{RobotID: "r1", Kind: KindRegister}},
		{name: "heartbeat", topic: "k8s4r/robots/r1/heartbeat", want: Address{RobotID: "r1", Kind: KindHeartbeat}},
		{name: "presence", topic: "k8s4r/robots/r1/presence", want: Address{RobotID: "r1", Kind: KindPresence}},
		{name: "status of a task", topic: "k8s4r/robots/r1/tasks/" + uuid + "/status", want: Address{RobotID: "r1", TaskUID: uuid, Kind: KindStatus}},
		{name: "status of a later attempt of a legacy agent", topic: "k8s4r/robots/r1/tasks/" + uuid + "-12/status", want: Address{RobotID: "r1", TaskUID: uuid + "-12", Kind: KindStatus}},
		{name: "logs of a task", topic: "k8s4r/robots/r1/tasks/t/logs", want: Address{RobotID: "r1", TaskUID: "t", Kind: KindLogs}},
		{name: "runs of a task", topic: "k8s4r/robots/r1/tasks/t/runs", want: Address{RobotID: "r1", TaskUID: "t", Kind: KindRuns}},
		{name: "the longest robot id", topic: "k8s4r/robots/" + label63 + "/presence", want: Address{RobotID: label63, Kind: KindPresence}},
		{name: "a robot id that is too long", topic: "k8s4r/robots/" + label63 + "a/presence", bad: true},
		{name: "an empty robot id", topic: "k8s4r/robots//presence", bad: true},
		{name: "a robot id in upper case", topic: "k8s4r/robots/R1/presence", bad: true},
		{name: "a robot id that is a wildcard", topic: "k8s4r/robots/+/presence", bad: true},
		{name: "a robot id with a slash in it", topic: "k8s4r/robots/r1/x/presence", bad: true},
		{name: "an empty task uid", topic: "k8s4r/robots/r1/tasks//status", bad: true},
		{name: "a task uid that is a parent directory", topic: "k8s4r/robots/r1/tasks/../status", bad: true},
		{name: "a task uid that is too long", topic: "k8s4r/robots/r1/tasks/" + label63 + "a/status", bad: true},
		{name: "a topic of the server: dispatch", topic: "k8s4r/robots/r1/tasks/dispatch", bad: true},
		{name: "a topic of the server: response", topic: "k8s4r/robots/r1/response", bad: true},
		{name: "a status topic that goes on", topic: "k8s4r/robots/r1/tasks/t/status/x", bad: true},
		{name: "no kind", topic: "k8s4r/robots/r1", bad: true},
		{name: "nothing", topic: "", bad: true},
		{name: "another tree", topic: "k8s5r/robots/r1/presence", bad: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseTopic(test.topic)
			if (err != nil) != test.bad {
				t.Fatalf("ParseTopic = %+v, %v; want an error: %v", got, err, test.bad)
			}
			if !test.bad && got != test.want {
				t.Errorf("ParseTopic = %+v, want %+v", got, test.want)
			}
		})
	}
}

var (
	labels      = rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`)
	robotKinds  = rapid.SampledFrom([]Kind{KindRegister, KindHeartbeat, KindPresence})
	taskKinds   = rapid.SampledFrom([]Kind{KindStatus, KindLogs, KindRuns})
	serverKinds = rapid.SampledFrom([]Kind{KindAck, KindResponse, KindDispatch, KindState})
)

func TestParseTopic_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		robot, uid := labels.Draw(t, "robot"), labels.Draw(t, "uid")
		rk, tk := robotKinds.Draw(t, "kind"), taskKinds.Draw(t, "task kind")
		if got, err := ParseTopic(RobotTopic(robot, rk)); err != nil || got != (Address{RobotID: robot, Kind: rk}) {
			t.Errorf("ParseTopic = %+v, %v", got, err)
		}
		if got, err := ParseTopic(TaskTopic(robot, uid, tk)); err != nil || got != (Address{RobotID: robot, TaskUID: uid, Kind: tk}) {
			t.Errorf("ParseTopic = %+v, %v", got, err)
		}
		if got, err := ParseTopic(RobotTopic(robot, serverKinds.Draw(t, "server kind"))); err == nil {
			t.Errorf("a topic of the server was parsed as one of a robot: %+v", got)
		}
	})
}

// matches reports whether an MQTT filter matches a topic (MQTT 5, 4.7).
func matches(filter, topic string) bool {
	f, w := strings.Split(filter, "/"), strings.Split(topic, "/")
	if len(f) != len(w) {
		return false
	}
	for i := range f {
		if f[i] != "+" && f[i] != w[i] {
			return false
		}
	}
	return true
}

func anyMatches(filters []string, topic string) bool {
	for _, f := range filters {
		if matches(f, topic) {
			return true
		}
	}
	return false
}

func TestSubscriptions_CoverTopicsOfOtherSide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		robot, uid, other := labels.Draw(t, "robot"), labels.Draw(t, "uid"), labels.Draw(t, "other")
		for _, topic := range []string{TopicRegister, TopicHeartbeat, RobotTopic(robot, robotKinds.Draw(t, "kind")), TaskTopic(robot, uid, KindStatus)} {
			if !anyMatches(ServerSubscriptions(), topic) {
				t.Errorf("the server does not subscribe to %s", topic)
			}
		}
		k := serverKinds.Draw(t, "server kind")
		if !anyMatches(RobotSubscriptions(robot), RobotTopic(robot, k)) {
			t.Errorf("robot %s does not subscribe to %s", robot, k)
		}
		if other != robot && anyMatches(RobotSubscriptions(robot), RobotTopic(other, k)) {
			t.Errorf("robot %s subscribes to a topic of %s", robot, other)
		}
	})
}

func TestAttemptUID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.StringMatching(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).Draw(t, "uid")
		attempt := rapid.Int32Range(1, 1<<31-1).Draw(t, "attempt")
		wired := AttemptUID(uid, attempt)
		if gotUID, got := SplitAttemptUID(wired); gotUID != uid || got != attempt {
			t.Errorf("SplitAttemptUID(%q) = %q, %d; want %q, %d", wired, gotUID, got, uid, attempt)
		}
		if err := validateTaskUID(wired); err != nil {
			t.Errorf("the UID of an attempt is not a valid task UID: %v", err)
		}
	})
	tests := []struct {
		name        string
		in          string
		wantUID     string
		wantAttempt int32
	}{
		{name: "the first attempt has no suffix", in: uuid, wantUID: uuid, wantAttempt: 1},
		{name: "the second", in: uuid + "-2", wantUID: uuid, wantAttempt: 2},
		{name: "one is never appended", in: uuid + "-1", wantUID: uuid + "-1", wantAttempt: 1},
		{name: "no leading zero", in: uuid + "-02", wantUID: uuid + "-02", wantAttempt: 1},
		{name: "no sign", in: uuid + "-+2", wantUID: uuid + "-+2", wantAttempt: 1},
		{name: "no overflow", in: uuid + "-4294967298", wantUID: uuid + "-4294967298", wantAttempt: 1},
		{name: "a text that is not a UUID is not split", in: "t-2", wantUID: "t-2", wantAttempt: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if uid, attempt := SplitAttemptUID(test.in); uid != test.wantUID || attempt != test.wantAttempt {
				t.Errorf("SplitAttemptUID = %q, %d; want %q, %d", uid, attempt, test.wantUID, test.wantAttempt)
			}
		})
	}
}

func FuzzParseTopic(f *testing.F) {
	for _, s := range []string{TopicRegister, RobotTopic("r1", KindPresence), TaskTopic("r1", uuid, KindStatus), "k8s4r/robots/+/tasks/#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, topic string) {
		a, err := ParseTopic(topic)
		if err != nil {
			return
		}
		rebuilt := topic
		switch {
		case a.TaskUID != "":
			rebuilt = TaskTopic(a.RobotID, a.TaskUID, a.Kind)
		case !a.Shared:
			rebuilt = RobotTopic(a.RobotID, a.Kind)
		}
		if rebuilt != topic {
			t.Errorf("%q reads as %+v, which is %q", topic, a, rebuilt)
		}
		if !a.Shared && ValidateRobotID(a.RobotID) != nil {
			t.Errorf("%q passes with robot id %q", topic, a.RobotID)
		}
		if strings.ContainsAny(a.TaskUID, "/.+#") {
			t.Errorf("%q passes with task uid %q", topic, a.TaskUID)
		}
	})
}

func TestValidateRobotID_RejectsNamesOfPrograms(t *testing.T) {
	for _, name := range []string{ServerName, ConsoleName, AdminName} {
		_, err := ParseTopic(RobotTopic(name, KindRegister))
		if ValidateRobotID(name) == nil || err == nil {
			t.Errorf("a robot may be called %s", name)
		}
	}
	if err := ValidateRobotID("k8s4r-robot"); err != nil {
		t.Error(err)
	}
}
