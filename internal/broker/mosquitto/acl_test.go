package mosquitto

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/acl"
)

// The plugin gets exactly the permissions of the table, for each of its clients.
func TestConfig_GrantsThePermissionsOfTheTable(t *testing.T) {
	files, err := Config{Listen: ":8883", Dir: "/d", CAFile: "a", CertFile: "b", KeyFile: "c", Plugin: "/p.so", Robots: []string{"r1"}}.Files()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Default map[string]bool `json:"defaultACLAccess"`
		Clients []client        `json:"clients"`
		Roles   []role          `json:"roles"`
	}
	if err := json.Unmarshal(files[SecurityFile], &list); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{aclPublish, aclReceive, "subscribe"} {
		if list.Default[action] {
			t.Errorf("%s is allowed by default", action)
		}
	}
	want := map[string]acl.Client{
		ServerName: {Role: acl.Server}, ConsoleName: {Role: acl.Console}, "r1": {Role: acl.Robot, RobotID: "r1"},
	}
	for _, c := range list.Clients {
		if c.Name == AdminName {
			continue // its rights are the plugin's own
		}
		if len(c.Roles) != 1 {
			t.Fatalf("client %s has the roles %v", c.Name, c.Roles)
		}
		i := slices.IndexFunc(list.Roles, func(r role) bool { return r.Name == c.Roles[0].Name })
		if i < 0 {
			t.Fatalf("client %s has the unknown role %v", c.Name, c.Roles[0])
		}
		checkRules(t, list.Roles[i], want[c.Name])
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("there are no clients for %v", want)
	}
}

func checkRules(t *testing.T, r role, c acl.Client) {
	t.Helper()
	granted := map[string][]string{}
	for _, rule := range r.Rules {
		if !rule.Allow {
			t.Errorf("%s has a rule that denies %s", r.Name, rule.Topic)
		}
		granted[rule.Type] = append(granted[rule.Type], rule.Topic)
	}
	for action, want := range map[string][]string{aclPublish: c.PublishFilters(), aclSubscribe: c.SubscribeFilters(), aclReceive: c.SubscribeFilters()} {
		if !slices.Equal(granted[action], want) {
			t.Errorf("%s: %s is granted on %q, want %q", r.Name, action, granted[action], want)
		}
		delete(granted, action)
	}
	if len(granted) > 0 {
		t.Errorf("%s has other rules: %v", r.Name, granted)
	}
}
