package diagnose

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s4r.io/k8s4r/internal/robot/shim/program"
)

func TestWorst(t *testing.T) {
	for _, test := range []struct {
		all  []Level
		want Level
	}{{nil, OK}, {[]Level{OK, OK}, OK}, {[]Level{OK, Warn, OK}, Warn}, {[]Level{Fail, Warn, OK}, Fail}} {
		var all []Finding
		for _, l := range test.all {
			all = append(all, Finding{Level: l})
		}
		if got := Worst(all); got != test.want {
			t.Errorf("of %v the worst is %s, want %s", test.all, got, test.want)
		}
	}
}

func TestCheckUnit(t *testing.T) {
	const whole = "LoadState=loaded\nUnitFileState=enabled\nKillMode=process\nDelegate=yes\nRestart=always\n"
	tests := []struct {
		name, shows string
		want        []string // parts of the warnings; none: it is good
	}{
		{"as it should be", whole, nil},
		{"none", "LoadState=not-found\nUnitFileState=\n", []string{"is not installed"}},
		{"one that kills tasks", strings.Replace(whole, "process", "control-group", 1), []string{"KillMode=control-group: a restart of the agent kills all of its tasks"}},
		{"one without cgroups", strings.Replace(whole, "Delegate=yes", "Delegate=no", 1), []string{"Delegate=no"}},
		{"one that stays down, and does not start", "LoadState=loaded\nUnitFileState=disabled\nKillMode=process\nDelegate=yes\nRestart=on-failure\n",
			[]string{"Restart=on-failure", "is not enabled"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			found := checkUnit(parseProperties(test.shows))
			if len(test.want) == 0 && Worst(found) != OK {
				t.Errorf("%+v, want no warnings", found)
			}
			for i, want := range test.want {
				if i >= len(found) || found[i].Level != Warn || !strings.Contains(found[i].Message, want) || found[i].Remedy == "" {
					t.Errorf("%+v, want a warning with %q and what to do", found, want)
				}
			}
		})
	}
}

func TestCheckPassage_WarnsIfOtherUsersCannotPass(t *testing.T) {
	shut := filepath.Join(t.TempDir(), "shut")
	if err := os.Mkdir(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	found := checkStateDir(filepath.Join(shut, "below", "state"))
	if Worst(found) != Warn {
		t.Fatalf("%+v, want a warning", found)
	}
	for _, f := range found {
		if strings.Contains(f.Message, shut+" is closed to other users") && strings.Contains(f.Remedy, "chmod o+x "+shut) {
			return
		}
	}
	t.Errorf("%+v, want a warning about %s", found, shut)
}

func TestCheckDrivers_NamesWhatIsMissing(t *testing.T) {
	if all := checkDrivers(Subject{Drivers: []string{"docker", "exec", "java", "raw_exec"}}); len(all) != 1 || all[0].Level != OK {
		t.Errorf("with all: %+v", all)
	}
	few := checkDrivers(Subject{Drivers: []string{"exec", "raw_exec"}, Engine: "/run/engine.sock"})
	if len(few) != 3 || Worst(few) != Warn || !strings.Contains(few[1].Message, "/run/engine.sock") || !strings.Contains(few[2].Message, "java") {
		t.Errorf("with two: %+v", few)
	}
}

func TestDescribeShims_NamesCauseAndRemedy(t *testing.T) {
	if f := describeShims(nil); f.Level != OK {
		t.Errorf("%+v, want ok", f)
	}
	for want, err := range map[string]error{"make build": program.ErrNotCarried, "memfd_noexec": syscall.EACCES} {
		f := describeShims(err)
		if f.Level != Warn || !strings.Contains(f.Message, err.Error()) || !strings.Contains(f.Remedy, want) {
			t.Errorf("%v: %+v, want a warning with the error, and %q", err, f, want)
		}
	}
}

func TestExamine_EveryProblemHasARemedy(t *testing.T) {
	for _, f := range slices.Concat(checkKernel(), checkClock(), checkCertificates(), checkDrivers(Subject{})) {
		if (f.Level == OK) != (f.Remedy == "") {
			t.Errorf("%+v", f)
		}
	}
}
