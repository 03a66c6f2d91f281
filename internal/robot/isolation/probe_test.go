package isolation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestProbeHost_ReportsEachFactOnceAndCleansUp(t *testing.T) {
	dir, before := t.TempDir(), mounted(t)
	if err := os.MkdirAll(filepath.Join(dir, "probe", "tmp"), 0o700); err != nil { // as left by an agent that was killed during a probe
		t.Fatal(err)
	}
	h := ProbeHost("test-probe", dir)
	var named []Fact
	named = append(named, h.Allowed...)
	for _, l := range h.Missing {
		named = append(named, l.Fact)
		if l.Reason == "" || l.Remedy == "" {
			t.Errorf("%+v does not say why and how", l)
		}
	}
	slices.Sort(named)
	all := slices.Clone(Facts)
	slices.Sort(all)
	if !slices.Equal(named, all) {
		t.Errorf("it names %v, want %v", named, all)
	}
	if h.Tree != nil {
		if names := h.Tree.listNames(); len(names) > 0 {
			t.Errorf("cgroups %v are left", names)
		}
		if err := h.Tree.Remove(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left in its directory", left)
	}
	if after := mounted(t); after != before {
		t.Errorf("mounts are left:\n%s", after)
	}
}

func TestHost_MissingFactsHaveReasons(t *testing.T) {
	h := Host{Allowed: []Fact{FactSeccomp}, Missing: []MissingFact{{FactUser, "the agent is not root", "run it as root"}}}
	got := h.MissingFacts([]string{"seccomp", "user", "magic", "cgroup"})
	if len(got) != 3 || got[0] != h.Missing[0] || !strings.Contains(got[1].Reason, `"magic" is not a known kind of isolation`) || got[2].Fact != FactCgroup {
		t.Errorf("MissingFacts() = %+v", got)
	}
	if got := h.MissingFacts([]string{"seccomp"}); got != nil {
		t.Errorf("MissingFacts() of supported facts = %+v", got)
	}
}

// withoutRoot runs a role of this program without root.
func withoutRoot(c *exec.Cmd) *exec.Cmd {
	c.Dir = "/"
	if os.Geteuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return c
}

func TestProbeHost_WithoutRootReportsMissingFacts(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = []string{roleVar + "=probe"}
	var h Host
	if err := json.Unmarshal([]byte(output(t, withoutRoot(c))), &h); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Fact{FactNoNewPrivileges, FactRlimits, FactSeccomp} {
		if !h.Allows(f) {
			t.Errorf("%s works without root, but is missing: %+v", f, h.explainMissing(f))
		}
	}
	for _, f := range []Fact{FactMountNamespace, FactPIDNamespace, FactIPCNamespace, FactPrivateTmp, FactReadOnlySystem, FactUser} {
		if l := h.explainMissing(f); h.Allows(f) || !strings.HasPrefix(l.Reason, "the agent is not root") || l.Remedy != "run the agent as root" {
			t.Errorf("%s: %+v", f, l)
		}
	}
	if l := h.explainMissing(FactCgroup); !h.Allows(FactCgroup) && !strings.Contains(l.Remedy, "Delegate=yes") {
		t.Errorf("cgroup: %+v, want a remedy without root", l)
	}
}

func TestStart_WithoutRootRunsTasks(t *testing.T) {
	script := sh("id -u; ulimit -c; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status")
	bare := shimCommand(t, order{Command: script})
	if got := strings.Fields(output(t, withoutRoot(bare))); got[0] != "65534" && os.Geteuid() == 0 || got[3] != "0" {
		t.Errorf("unconfined: %v", got)
	}
	bound := shimCommand(t, order{Command: script, Confinement: Confinement{Seccomp: true, Rlimits: true}})
	if got := strings.Fields(output(t, withoutRoot(bound))); got[1] != "0" || got[3] != "1" || got[5] != "2" {
		t.Errorf("with the confinement that works without root: %v", got)
	}
}
