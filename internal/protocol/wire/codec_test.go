package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/protocol/policy"
)

func words(t *rapid.T, name string) string { return rapid.StringN(0, 20, 100).Draw(t, name) }

func moment(t *rapid.T, name string) time.Time {
	return time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, name)).UTC()
}

func strMap(t *rapid.T, name string) map[string]string {
	m := rapid.MapOfN(rapid.String(), rapid.String(), 0, 4).Draw(t, name)
	if len(m) == 0 {
		return nil // an empty one is not written
	}
	return m
}

func task(t *rapid.T) Task {
	return Task{
		Metadata: TaskMeta{Name: words(t, "name"), Namespace: words(t, "namespace"), UID: words(t, "uid"), Labels: strMap(t, "labels")},
		Spec: TaskSpec{
			Name: words(t, "task"), JobName: words(t, "job"), TaskGroupName: words(t, "group"), TargetRobot: words(t, "robot"), Driver: words(t, "driver"),
			Config: TaskConfig{Exec: &ExecConfig{Command: words(t, "command"), Args: rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "args")}},
			Env:    strMap(t, "env"), Timeout: Duration(rapid.Int64Min(0).Draw(t, "timeout")), KillTimeout: new(Duration(rapid.Int64Min(0).Draw(t, "kill"))),
		},
	}
}

// drawPolicy draws a policy with lists that are missing, empty and filled, which differ.
func drawPolicy(t *rapid.T) *policy.Policy {
	if !rapid.Bool().Draw(t, "has a policy") {
		return nil
	}
	list := func(name string) []string {
		return rapid.SampledFrom([][]string{nil, {}, {words(t, name)}}).Draw(t, name+" list")
	}
	return &policy.Policy{Allow: policy.Rules{Drivers: list("driver"), Mounts: list("mount"), Root: new(rapid.Bool().Draw(t, "root"))}, Problem: words(t, "problem")}
}

func status(t *rapid.T) Status {
	at := moment(t, "at")
	return Status{
		TaskUID: words(t, "uid"), RobotName: words(t, "robot"), State: words(t, "state"), ExitCode: rapid.Int32().Draw(t, "code"),
		Message: words(t, "message"), Event: words(t, "event"), Resources: &ResourceUsage{MemoryBytes: rapid.Uint64().Draw(t, "memory")},
		UpdatedAt: at, Attempt: rapid.Int32().Draw(t, "attempt"), Seq: rapid.Uint64().Draw(t, "seq"), Signal: rapid.Int32().Draw(t, "signal"),
		Reason: words(t, "reason"), StartedAt: &at, FinishedAt: &at, Outputs: strMap(t, "outputs"),
		Run: rapid.Int64Range(2, MaxRunNumber).Draw(t, "run"), Runs: []Run{{Run: 1, StartedAt: &at, FinishedAt: &at, ExitCode: rapid.Int32().Draw(t, "code of the run")}, {Run: 2, StartedAt: &at}}, NextRunAt: &at,
		NeedsSecrets: rapid.Bool().Draw(t, "needs secrets"),
	}
}

// roundTrip checks that a message reads back as it was written.
func roundTrip[T any](t *rapid.T, v T) {
	b, err := Encode(v)
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	got, err := Decode[T](b)
	if err != nil {
		t.Fatalf("Decode(%s): %v", b, err)
	}
	if !reflect.DeepEqual(got, v) {
		t.Errorf("%s reads as\n%+v, want\n%+v", b, got, v)
	}
}

func TestEncode_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roundTrip(t, Dispatch{Action: ActionCreate, Task: task(t), Attempt: rapid.Int32().Draw(t, "attempt"), Epoch: rapid.Uint64().Draw(t, "epoch"), RobotUID: words(t, "era"), Started: rapid.Bool().Draw(t, "dispatch started")})
		roundTrip(t, status(t))
		roundTrip(t, TaskList{Tasks: []Task{task(t)}, Refs: []TaskReference{{UID: words(t, "ref"), Attempt: 2, Started: rapid.Bool().Draw(t, "ref started"), StartsNoRun: rapid.Bool().Draw(t, "starts no run")}}, Epoch: rapid.Uint64().Draw(t, "list epoch"), RobotUID: words(t, "list era"), ServerConnectionID: words(t, "server connection"), SendsSecrets: rapid.Bool().Draw(t, "sends secrets")})
		roundTrip(t, Ack{Heartbeat: rapid.Uint64().Draw(t, "n"), Tasks: []TaskAck{{UID: words(t, "acked"), Attempt: 1, Seq: rapid.Uint64().Draw(t, "acked seq")}}})
		roundTrip(t, Register{RobotID: words(t, "id"), Token: words(t, "token"), DeviceInfo: &DeviceInfo{Hostname: words(t, "host")}, Labels: strMap(t, "robot labels"), Policy: drawPolicy(t), UpdatesItself: true, AgentUpdate: &AgentUpdate{Rollout: words(t, "rollout"), Try: 1, IsRevert: true, Version: words(t, "to"), State: AgentFailed, Message: words(t, "why"), At: moment(t, "update")}})
		roundTrip(t, Heartbeat{Seq: rapid.Uint64().Draw(t, "beat")})
		roundTrip(t, Response{Success: rapid.Bool().Draw(t, "success"), Message: words(t, "answer"), RobotID: words(t, "robot id"), AgentOrder: &AgentOrder{Rollout: words(t, "rollout"), Try: 1, IsRevert: true, Version: words(t, "to"), WindowSeconds: 60, Artifact: &AgentArtifact{OS: "linux", Arch: "arm64", Source: words(t, "source"), Size: 5, SHA256: words(t, "sum"), Signature: words(t, "signature")}}})
		roundTrip(t, Presence{Online: rapid.Bool().Draw(t, "online"), Graceful: rapid.Bool().Draw(t, "graceful")})
	})
}

func TestDecode_AcceptsWholeTaskObject(t *testing.T) {
	d, err := Decode[Dispatch]([]byte(`{"action":"create","task":{"apiVersion":"robot.k8s4r.io/v1alpha1","kind":"Task",
		"metadata":{"name":"t1","namespace":"default","uid":"` + uuid + `","resourceVersion":"12","labels":{"job":"j"}},
		"spec":{"name":"main","driver":"exec","config":{"execConfig":{"command":"/bin/echo","args":["a"]}},
		"resources":{"cpu":"100m"},"timeout":"1m30s"},"status":{"state":"dispatching"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Task{
		Metadata: TaskMeta{Name: "t1", Namespace: "default", UID: uuid, Labels: map[string]string{"job": "j"}},
		Spec: TaskSpec{
			Name: "main", Driver: "exec", Timeout: Duration(90 * time.Second), Resources: &Resources{CPU: "100m"},
			Config: TaskConfig{Exec: &ExecConfig{Command: "/bin/echo", Args: []string{"a"}}},
		},
	}
	if !reflect.DeepEqual(d.Task, want) {
		t.Errorf("read %+v, want %+v", d.Task, want)
	}
}

func TestDecode_RejectsInvalidMessages(t *testing.T) {
	tests := []struct {
		name    string
		payload string
		want    error
	}{
		{name: "no payload", payload: ""},
		{name: "half a message", payload: `{"action":"create"`},
		{name: "binary data", payload: "\x00\x01\xff"},
		{name: "another type", payload: `[]`},
		{name: "an attempt beyond 32 bits", payload: `{"attempt":4294967296}`},
		{name: "a negative epoch", payload: `{"epoch":-1}`},
		{name: "a negative timeout", payload: `{"task":{"spec":{"timeout":"-1s"}}}`},
		{name: "a timeout without a unit", payload: `{"task":{"spec":{"timeout":"5"}}}`},
		{name: "a timeout that is a number", payload: `{"task":{"spec":{"timeout":5}}}`},
		{name: "deep nesting", payload: strings.Repeat(`{"task":`, 20_000)},
		{name: "more than 256 KiB", payload: `{"action":"` + strings.Repeat("x", MaxPayload) + `"}`, want: ErrTooLarge},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d, err := Decode[Dispatch]([]byte(test.payload))
			if err == nil || (test.want != nil && !errors.Is(err, test.want)) {
				t.Errorf("Decode = %+v, %v; want an error, %v", d, err, test.want)
			}
		})
	}
}

func TestEncode_RejectsTooLargeMessages(t *testing.T) {
	if _, err := Encode(Status{Message: strings.Repeat("x", MaxPayload)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Encode = %v, want ErrTooLarge", err)
	}
}

func TestWithinLimits_TruncatesOnlyLongText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := status(t)
		if got := s.WithinLimits(); !reflect.DeepEqual(got, s) {
			t.Errorf("WithinLimits changed a small status to %+v", got)
		}
		long := strings.Repeat(rapid.StringN(1, 3, -1).Draw(t, "unit"), 5000)
		s.Message, s.Reason, s.Event = long, long, long
		s.Outputs = map[string]string{}
		for i := range 100 {
			s.Outputs[fmt.Sprint(i)] = long
		}
		got := s.WithinLimits()
		if len(got.Message) > maxMessage || len(got.Reason) > maxToken || len(got.Event) > maxToken || len(got.Outputs) != MaxOutputs {
			t.Errorf("WithinLimits left %d, %d, %d bytes and %d outputs", len(got.Message), len(got.Reason), len(got.Event), len(got.Outputs))
		}
		if !utf8.ValidString(got.Message) && utf8.ValidString(long) {
			t.Error("WithinLimits split a character")
		}
	})
}

func TestWithoutUsage_KeepsEverythingElse(t *testing.T) {
	d := DeviceInfo{
		Hostname: "h", CPU: &CPU{ModelName: "m", MHz: 1, UsagePercent: 2}, Memory: &Memory{Total: 3, Free: 4}, Swap: &Swap{Total: 5, Used: 6},
		Disks: []Disk{{Device: "d", Total: 7, Used: 8}}, NetworkInterfaces: []NetworkInterface{{Name: "n", BytesSent: 9, PacketsRecv: 10}}, Uptime: 11,
	}
	later := d
	later.CPU = &CPU{ModelName: "m", MHz: 100, UsagePercent: 200}
	later.Memory, later.Swap = &Memory{Total: 3, Free: 400}, &Swap{Total: 5, Used: 600}
	later.Disks, later.NetworkInterfaces = []Disk{{Device: "d", Total: 7, Used: 800}}, []NetworkInterface{{Name: "n", BytesSent: 900}}
	later.Uptime = 1100
	if !reflect.DeepEqual(d.WithoutUsage(), later.WithoutUsage()) {
		t.Errorf("WithoutUsage differs in usage:\n%+v\n%+v", d.WithoutUsage(), later.WithoutUsage())
	}
	if d.CPU.UsagePercent != 2 || d.Disks[0].Used != 8 || d.NetworkInterfaces[0].BytesSent != 9 {
		t.Errorf("WithoutUsage changed its receiver: %+v", d)
	}
	later.Disks[0].Total = 1
	if reflect.DeepEqual(d.WithoutUsage(), later.WithoutUsage()) {
		t.Error("WithoutUsage hides a change of a disk")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"action":"create","task":{"metadata":{"uid":"a"},"spec":{"timeout":"1s","config":{"execConfig":{"command":"c"}}}},"attempt":1}`))
	f.Add([]byte(`{"taskUid":"a","state":"running","updatedAt":"2026-01-01T00:00:00Z","outputs":{"a":"b"}}`))
	f.Add([]byte(`{"robotId":"r1","policy":{"allow":{"drivers":[],"root":false,"mounts":["/srv:ro"]},"problem":"x"}}`))
	f.Add([]byte(`{"tasks":[],"refs":[{"uid":"a","attempt":1}],"epoch":1}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		fuzzOne[Dispatch](t, payload)
		fuzzOne[TaskList](t, payload)
		fuzzOne[Ack](t, payload)
		fuzzOne[Register](t, payload)
		fuzzOne[Heartbeat](t, payload)
		fuzzOne[Status](t, payload)
		fuzzOne[Response](t, payload)
		fuzzOne[Presence](t, payload)
	})
}

// fuzzOne checks that a decoded message can be encoded, and decodes to the same message.
func fuzzOne[T any](t *testing.T, payload []byte) {
	v, err := Decode[T](payload)
	if err != nil {
		return
	}
	b, err := Encode(v)
	if errors.Is(err, ErrTooLarge) {
		return // escapes can make it longer
	}
	if err != nil {
		t.Fatalf("%q reads as %+v, which cannot be written: %v", payload, v, err)
	}
	again, err := Decode[T](b)
	if err != nil {
		t.Fatalf("%q is written as %q, which cannot be read: %v", payload, b, err)
	}
	if c, err := Encode(again); err != nil || string(c) != string(b) {
		t.Errorf("%q is written as %q, and then as %q (%v)", payload, b, c, err)
	}
}

// What is left of a long text must not keep all of it in memory.
func TestTruncateText_CopiesWhatIsLeft(t *testing.T) {
	long := strings.Repeat("ä", 100)
	for n, want := range map[int]float64{len(long): 0, 11: 1} {
		var got string
		if allocations := testing.AllocsPerRun(10, func() { got = TruncateText(long, n) }); allocations != want {
			t.Errorf("%d bytes: %v allocations, want %v", n, allocations, want)
		}
		if !strings.HasPrefix(long, got) || len(got) != n-n%2 {
			t.Errorf("%d bytes: %q", n, got)
		}
	}
}
