package apiconv

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

func TestCapacity(t *testing.T) {
	device := &v1alpha1.DeviceInfo{
		CPU: &v1alpha1.CPU{LogicalCores: 4}, Memory: &v1alpha1.Memory{Total: 1 << 30},
		Disks: []v1alpha1.Disk{{MountPoint: "/boot", Total: 1 << 20}, {MountPoint: "/", Total: 1 << 35}, {MountPoint: "/data", Total: 1 << 34}},
	}
	capacity := func(pairs ...string) map[string]resource.Quantity {
		m := map[string]resource.Quantity{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = resource.MustParse(pairs[i+1])
		}
		return m
	}
	const any = placement.Unlimited
	for _, c := range []struct {
		name       string
		inDevice   *v1alpha1.DeviceInfo
		inCapacity map[string]resource.Quantity
		want       placement.Room
	}{
		{"a robot that reports nothing is bounded only by the default number of tasks", nil, nil,
			placement.Room{Tasks: 64, CPU: any, Memory: any, Disk: any, IOPS: any, MBits: any}},
		{"reported capacity, with the largest disk", device, nil,
			placement.Room{Tasks: 64, CPU: 4000, Memory: 1 << 30, Disk: 1 << 35, IOPS: any, MBits: any}},
		{"spec.capacity overrides reported capacity", device, capacity("cpu", "500m", "memory", "1Mi", "tasks", "2", "disk", "1Gi", "iops", "500", "mbits", "100"),
			placement.Room{Tasks: 2, CPU: 500, Memory: 1 << 20, Disk: 1 << 30, IOPS: 500, MBits: 100}},
		{"spec.capacity may set the number of tasks to zero", nil, capacity("tasks", "0"),
			placement.Room{CPU: any, Memory: any, Disk: any, IOPS: any, MBits: any}},
		{"any other name is a device", nil, capacity("arm", "2", "camera", "0"),
			placement.Room{Tasks: 64, CPU: any, Memory: any, Disk: any, IOPS: any, MBits: any, Devices: placement.Devices{{Name: "arm", Count: 2}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &v1alpha1.Robot{Spec: v1alpha1.RobotSpec{Capacity: c.inCapacity}, Status: v1alpha1.RobotStatus{DeviceInfo: c.inDevice}}
			if got := RobotFrom(r).Capacity; !got.Equal(c.want) {
				t.Errorf("capacity %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTaskFrom_SaturatesQuantities(t *testing.T) {
	for _, text := range []string{"1e16", "1e19", "1e30", "8Ei", "99999999999999999999"} {
		q := resource.MustParse(text)
		needs := TaskFrom("", "t", &v1alpha1.TaskDefinition{Resources: &v1alpha1.Resources{
			CPU: &q, Memory: &q, Disk: &q, Devices: map[string]resource.Quantity{"arm": q},
		}}, nil, nil).Needs
		want := placement.Room{CPU: bound, Memory: bound, Disk: bound, Devices: placement.Devices{{Name: "arm", Count: bound}}}
		if !needs.Equal(want) {
			t.Errorf("%s: needs %+v", text, needs)
		}
	}
}

func TestTaskFrom_AddsBandwidthOfNetworks(t *testing.T) {
	r := &v1alpha1.Resources{Networks: []v1alpha1.Network{{MBits: 10}, {MBits: 5}}}
	needs := TaskFrom("", "t", &v1alpha1.TaskDefinition{Resources: r}, nil, nil).Needs
	if needs.MBits != 15 {
		t.Errorf("needs %+v", needs)
	}
	if small := (placement.Room{MBits: 14}); needs.Beyond(small).MBits != 1 {
		t.Errorf("beyond: %+v", needs.Beyond(small))
	}
}

func TestTaskFrom(t *testing.T) {
	q := resource.MustParse("250m")
	m := resource.MustParse("1Ki")
	def := &v1alpha1.TaskDefinition{Driver: "exec", Resources: &v1alpha1.Resources{
		CPU: &q, Memory: &m, Disk: &m, IOPS: 7, Devices: map[string]resource.Quantity{"arm": resource.MustParse("1")},
	}}
	want := placement.Room{CPU: 250, Memory: 1024, Disk: 1024, IOPS: 7, Devices: placement.Devices{{Name: "arm", Count: 1}}}
	if got := TaskFrom("default", "t", def, nil, nil); !got.Needs.Equal(want) || got.Shared != 0 || got.Isolation != "" {
		t.Errorf("needs %+v", got)
	}
	def.Isolation = &v1alpha1.Isolation{Required: []string{"user", "cgroup"}}
	for mb, bytes := range map[int64]int64{0: 0, 7: 7e6, 1e9: 1e15} {
		if got := TaskFrom("default", "t", def, nil, &v1alpha1.EphemeralDisk{SizeMB: mb}); got.Shared != bytes || got.Isolation != "cgroup,user" {
			t.Errorf("with %d MB it needs %+v", mb, got)
		}
	}
}

// Every name that a constraint may use has a value on a robot that reports all of
// itself, and no other name has one.
func TestAttributes(t *testing.T) {
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Name: "r1"}, Status: v1alpha1.RobotStatus{
		Agent: &v1alpha1.AgentInfo{Version: "1.0", Protocol: "k8s4r"},
		DeviceInfo: &v1alpha1.DeviceInfo{
			Hostname: "h", Drivers: []string{"exec", "docker"},
			Platform: &v1alpha1.Platform{OS: "linux", Arch: "arm64", KernelVersion: "6.1.0", Platform: "debian", PlatformFamily: "debian", PlatformVersion: "12"},
			CPU:      &v1alpha1.CPU{LogicalCores: 8, ModelName: "A76", Vendor: "ARM"},
			Memory:   &v1alpha1.Memory{Total: 1 << 33}, Disks: []v1alpha1.Disk{{Total: 1 << 34}},
		},
	}}
	got := RobotFrom(r).Attrs
	for _, name := range placement.Attributes {
		if got[name] == "" {
			t.Errorf("%s has no value", name)
		}
	}
	if got["driver.docker"] != "true" || got["memory.total"] != "8589934592" || got["drivers"] != "exec,docker" {
		t.Errorf("attributes %v", got)
	}
	if n := len(placement.Attributes) + len(r.Status.DeviceInfo.Drivers); len(got) != n {
		t.Errorf("%d attributes, %d are known", len(got), n)
	}
	if bare := RobotFrom(&v1alpha1.Robot{}).Attrs; len(bare) != 0 {
		t.Errorf("a robot that reports nothing has %v", bare)
	}
}

func TestConstraintsFrom_AcceptsBothSpellings(t *testing.T) {
	l, r := "${robot.attr.os}", "linux"
	for name, c := range map[string]v1alpha1.Constraint{
		"lTarget": {LTarget: &l, Operand: "=", RTarget: &r},
		"ltarget": {LTargetLower: &l, Operand: "=", RTargetLower: &r},
	} {
		want := placement.Constraint{Left: l, Operand: "=", Right: r}
		if got := ConstraintsFrom([]v1alpha1.Constraint{c}); len(got) != 1 || got[0] != want {
			t.Errorf("%s is read as %v", name, got)
		}
	}
}

func TestPreferencesFrom(t *testing.T) {
	near, away := "near", "nowhere"
	p := &v1alpha1.Placement{Strategy: "pack",
		Affinity:     []v1alpha1.AffinityTerm{{TaskGroup: &near, Weight: 70}, {TaskGroup: &away}},
		AntiAffinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"old": "yes"}}},
	}
	got := PreferencesFrom(p, func(group string) string { return map[string]string{"near": "j-near"}[group] })
	want := &placement.Preferences{Pack: true, Affinity: []placement.Affinity{
		{Group: "j-near", Weight: 70}, {Labels: map[string]string{"old": "yes"}, Weight: -50},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRobotFrom_PrefersLabelsOfTheSpec(t *testing.T) {
	r := &v1alpha1.Robot{Spec: v1alpha1.RobotSpec{Labels: map[string]string{"env": "prod"}}}
	r.Labels = map[string]string{"env": "test", "zone": "a"}
	if got := RobotFrom(r).Labels; got["env"] != "prod" || got["zone"] != "a" {
		t.Errorf("labels %v", got)
	}
}

func TestDescribeOversize(t *testing.T) {
	spec := &v1alpha1.TaskSpec{TaskDefinition: v1alpha1.TaskDefinition{Name: "t", Env: map[string]string{"X": ""}}}
	if why := DescribeOversize(spec); why != "" {
		t.Errorf("a small task: %s", why)
	}
	spec.Env["X"] = strings.Repeat("x", MaxMessage)
	if why := DescribeOversize(spec); !strings.HasPrefix(why, "task t is too large for a message to a robot: 201 KiB, at most 200 KiB") {
		t.Errorf("a large task: %q", why)
	}
}

func TestRobotFrom_ReadsImpairment(t *testing.T) {
	for _, c := range []struct {
		name string
		in   map[string]metav1.ConditionStatus
		want placement.CheckName
	}{
		{"a robot without conditions", nil, ""},
		{"one that answers", map[string]metav1.ConditionStatus{v1alpha1.ConditionResponsive: metav1.ConditionTrue}, ""},
		{"one that does not", map[string]metav1.ConditionStatus{v1alpha1.ConditionResponsive: metav1.ConditionFalse}, placement.CheckResponsive},
		{"a full disk", map[string]metav1.ConditionStatus{v1alpha1.ConditionDiskPressure: metav1.ConditionTrue}, placement.CheckDiskPressure},
		{"a disk that has room again", map[string]metav1.ConditionStatus{v1alpha1.ConditionDiskPressure: metav1.ConditionFalse}, ""},
		{"a maintenance explains the rest", map[string]metav1.ConditionStatus{v1alpha1.ConditionMaintenance: metav1.ConditionTrue, v1alpha1.ConditionDiskPressure: metav1.ConditionTrue}, placement.CheckMaintenance},
		{"a maintenance that has ended", map[string]metav1.ConditionStatus{v1alpha1.ConditionMaintenance: metav1.ConditionFalse}, ""},
		{"a journal that cannot be written explains the missing answer",
			map[string]metav1.ConditionStatus{v1alpha1.ConditionResponsive: metav1.ConditionFalse, v1alpha1.ConditionJournalReadOnly: metav1.ConditionTrue}, placement.CheckJournalReadOnly},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &v1alpha1.Robot{}
			for kind, status := range c.in {
				r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: kind, Status: status})
			}
			if got := RobotFrom(r).Impairment; got != c.want {
				t.Errorf("impairment %q, want %q", got, c.want)
			}
		})
	}
}
