package template

import "testing"

func TestData_LookupFindsMetaRobotAndEnvironment(t *testing.T) {
	d := data
	d.Env = map[string]string{"PORT": "8080", "EMPTY": ""}
	for name, want := range map[string]string{
		"PORT": "8080", "EMPTY": "", "meta.team": "blue", "robot.labels.robot.k8s4r.io/arm": "left", "robot.attr.cpu.cores": "4", "attr.cpu.cores": "4",
	} {
		if got, found := d.Lookup(name); !found || got != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, found, want)
		}
	}
	for _, name := range []string{"NONE", "meta.none", "robot.labels.none", "robot.attr.none", "attr.none", "robot.label.zone", ""} {
		if got, found := d.Lookup(name); found {
			t.Errorf("%s: got %q, want none", name, got)
		}
	}
}
