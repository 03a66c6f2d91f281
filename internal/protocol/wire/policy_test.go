package wire

import (
	"encoding/json"
	"testing"
)

// TestRegister_PolicyIsAdditive shows that agents and servers of both versions understand each other.
func TestRegister_PolicyIsAdditive(t *testing.T) {
	old, err := Decode[Register]([]byte(`{"robotId":"r1","agentVersion":"1"}`))
	if err != nil || old.Policy != nil {
		t.Errorf("a registration without a policy is read as %+v, %v", old, err)
	}
	newer, err := Decode[Register]([]byte(`{"robotId":"r1","policy":{"allow":{"drivers":["exec"],"weather":["fair"]}}}`))
	if err != nil || newer.Policy == nil || len(newer.Policy.Allow.Drivers) != 1 {
		t.Errorf("a registration with an unknown rule is read as %+v, %v", newer, err)
	}
	b, err := Encode(Register{RobotID: "r1"})
	var fields map[string]json.RawMessage
	if err != nil || json.Unmarshal(b, &fields) != nil || fields["policy"] != nil {
		t.Errorf("a robot without a policy registers %s, %v", b, err)
	}
}
