package wire

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAgentUpdate_IsBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	u := AgentUpdate{Rollout: "uid", Try: 1, IsRevert: true, Version: "v2", State: AgentFailed, Message: "no key", At: time.Unix(1, 0)}
	if got := u.WithinLimits(); !reflect.DeepEqual(*got, u) {
		t.Errorf("%+v, want %+v", got, u)
	}
	for _, change := range []func(*AgentUpdate){
		func(u *AgentUpdate) { u.Rollout = "" },
		func(u *AgentUpdate) { u.Rollout = long },
		func(u *AgentUpdate) { u.State = "Unknown" },
		func(u *AgentUpdate) { u.State = "" },
	} {
		changed := u
		change(&changed)
		if got := changed.WithinLimits(); got != nil {
			t.Errorf("%+v is accepted", changed)
		}
	}
	u.Try, u.Version, u.Message = 1<<30, long, "a\x1b[2Jb\n"+long
	if got := u.WithinLimits(); got.Try != MaxUpdateTry || len(got.Version) != maxAgentVersion || len(got.Message) != MaxUpdateMessage || !strings.HasPrefix(got.Message, "a[2Jbx") {
		t.Errorf("%+v", got)
	}
	if u.Try = -1; u.WithinLimits().Try != 0 {
		t.Errorf("%+v", u.WithinLimits())
	}
	if (*AgentUpdate)(nil).WithinLimits() != nil {
		t.Error("a report that was not sent has something")
	}
}

func TestAgentOrder_IsWithinLimits(t *testing.T) {
	good := AgentOrder{Rollout: "uid", Try: MaxUpdateTry, Version: "v2", WindowSeconds: maxWindowSeconds}
	if !good.IsWithinLimits() {
		t.Errorf("%+v is refused", good)
	}
	for _, change := range []func(*AgentOrder){
		func(o *AgentOrder) { o.Rollout = "" },
		func(o *AgentOrder) { o.Rollout = strings.Repeat("x", maxUID+1) },
		func(o *AgentOrder) { o.Try++ },
		func(o *AgentOrder) { o.Try = -1 },
		func(o *AgentOrder) { o.Version = strings.Repeat("x", maxAgentVersion+1) },
		func(o *AgentOrder) { o.WindowSeconds++ },
		func(o *AgentOrder) { o.WindowSeconds = -1 },
	} {
		changed := good
		change(&changed)
		if changed.IsWithinLimits() {
			t.Errorf("%+v is accepted", changed)
		}
	}
}
