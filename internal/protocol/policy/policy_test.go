package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestPolicy_ValidateRejects(t *testing.T) {
	many := slices.Repeat([]string{"/srv/" + strings.Repeat("x", 60)}, 200)
	for name, c := range map[string]struct {
		in   Policy
		want string
	}{
		"no rule":                     {Policy{}, "allow: has no rule"},
		"an empty entry":              {Policy{Allow: Rules{Drivers: []string{""}}}, "allow.drivers[0] \"\": must not be empty"},
		"a space":                     {Policy{Allow: Rules{Users: []string{"a b"}}}, "allow.users[0]"},
		"a line end":                  {Policy{Allow: Rules{Users: []string{"ok", "a\n"}}}, "allow.users[1]"},
		"a pattern":                   {Policy{Allow: Rules{Namespaces: []string{"team-*"}}}, "patterns are not supported"},
		"a long entry":                {Policy{Allow: Rules{Devices: []string{strings.Repeat("x", MaxEntry+1)}}}, "at most 512 bytes"},
		"many entries":                {Policy{Allow: Rules{Devices: make([]string, MaxEntries+1)}}, "more than 256 entries"},
		"more than 8 KiB":             {Policy{Allow: Rules{Mounts: many}}, "longer than 8 KiB"},
		"a relative command":          {Policy{Allow: commands("bin/sh")}, "must be an absolute path"},
		"a command with ..":           {Policy{Allow: commands("/opt/../bin/sh")}, "must not contain a step .."},
		"a pattern of commands":       {Policy{Allow: commands("/opt/*")}, "patterns are not supported"},
		"a relative mount":            {Policy{Allow: mounts("data")}, "must be an absolute path"},
		"a mount with a target":       {Policy{Allow: mounts("/data:/data")}, "must be a path"},
		"a pattern of images":         {Policy{Allow: images("registry.example/*")}, "patterns are not supported"},
		"an image that is none":       {Policy{Allow: images("registry.example/UPPER")}, "must be a repository"},
		"an image with an empty tag":  {Policy{Allow: images("alpine:")}, "must be a repository"},
		"a problem that is very long": {Policy{Problem: strings.Repeat("x", MaxProblem+1)}, "problem: is longer"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.in.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate = %v, want %s", err, c.want)
			}
		})
	}
}

// TestPolicy_KeepsEmptyLists shows that a rule that allows nothing does not become no rule on its way.
func TestPolicy_KeepsEmptyLists(t *testing.T) {
	p := &Policy{Allow: Rules{Mounts: []string{}, Root: new(false)}}
	var got Policy
	if err := json.Unmarshal([]byte(p.Key()), &got); err != nil || !got.Equal(p) {
		t.Errorf("%s is read as %+v, %v", p.Key(), got, err)
	}
	if want := `{"allow":{"root":false,"mounts":[]}}`; p.Key() != want {
		t.Errorf("written as %s, want %s", p.Key(), want)
	}
	if (&Policy{Allow: Rules{Root: new(false)}}).Equal(p) {
		t.Error("an empty list equals a missing one")
	}
}

func TestAllowNothing_IsValid(t *testing.T) {
	if err := AllowNothing(strings.Repeat("ä", MaxProblem)).Validate(); err != nil {
		t.Error(err)
	}
}
