package taskgroup

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

func robotWith(changes ...func(*v1alpha1.Robot)) v1alpha1.Robot {
	r := v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r1"}}
	r.Spec.Labels = map[string]string{"zone": "x", "datacenter": "north"}
	r.Status.Phase = "Online"
	r.Status.DeviceInfo = &v1alpha1.DeviceInfo{Platform: &v1alpha1.Platform{OS: "linux"}, Drivers: []string{"exec"}}
	for _, f := range changes {
		f(&r)
	}
	return r
}

func sharedWith(namespace string) map[string]string {
	return map[string]string{v1alpha1.ShareLabelPrefix + namespace: "true"}
}

func withZone(labels map[string]string) map[string]string {
	labels["zone"], labels["datacenter"] = "x", "north"
	return labels
}

func TestMatchRobots(t *testing.T) {
	j := &v1alpha1.Job{}
	j.Spec.RobotSelector, j.Spec.Datacenters = map[string]string{"zone": "x"}, []string{"north", "south"}
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	g.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "t", Driver: "exec"}}
	g.Spec.Constraints = []v1alpha1.Constraint{{LTarget: new("${robot.attr.os}"), Operand: "=", RTarget: new("linux")}}
	yes, waits, away := RobotMatch{Schedulable: true, Online: true}, RobotMatch{Online: true}, RobotMatch{Schedulable: true}
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Robot)
		want   *RobotMatch // nil: it does not match
	}{
		{"one that is what the job asks for", func(*v1alpha1.Robot) {}, &yes},
		{"one that is offline", func(r *v1alpha1.Robot) { r.Status.Phase = "Offline" }, &away},
		{"one whose heartbeats are late", func(r *v1alpha1.Robot) { r.Status.Phase = "unknown" }, &away},
		{"one that is not approved", func(r *v1alpha1.Robot) { r.Status.Phase = "Pending" }, nil},
		{"a robot without a phase", func(r *v1alpha1.Robot) { r.Status.Phase = "" }, nil},
		{"one that takes nothing new", func(r *v1alpha1.Robot) { r.Spec.Unschedulable = true }, &waits},
		{"one that is drained", func(r *v1alpha1.Robot) { r.Spec.Drain = true }, &waits},
		{"one that is revoked", func(r *v1alpha1.Robot) { r.Spec.Identity = &v1alpha1.RobotIdentitySpec{Revoked: true} }, &RobotMatch{}},
		{"one that is being deleted", func(r *v1alpha1.Robot) { r.DeletionTimestamp = &metav1.Time{Time: noon} }, nil},
		{"one with another label", func(r *v1alpha1.Robot) { r.Spec.Labels["zone"] = "y" }, nil},
		{"one in another datacenter", func(r *v1alpha1.Robot) { r.Spec.Labels["datacenter"] = "east" }, nil},
		{"one that does not meet a constraint", func(r *v1alpha1.Robot) { r.Status.DeviceInfo.Platform.OS = "plan9" }, nil},
		{"one of another namespace", func(r *v1alpha1.Robot) { r.Namespace = "fleet" }, nil},
		{"one that is shared with this namespace", func(r *v1alpha1.Robot) { r.Namespace, r.Labels = "fleet", sharedWith("ns") }, &yes},
		{"one that is shared with another", func(r *v1alpha1.Robot) { r.Namespace, r.Labels = "fleet", sharedWith("ns2") }, nil},
		{"one that says itself that it is shared", func(r *v1alpha1.Robot) { r.Namespace, r.Spec.Labels = "fleet", withZone(sharedWith("ns")) }, nil},
		{"one without the driver", func(r *v1alpha1.Robot) { r.Status.DeviceInfo.Drivers = []string{"docker"} }, nil},
	} {
		fits := matchRobots(g, j, convertRobots("ns", []v1alpha1.Robot{robotWith(c.change)}))
		got, matches := fits["r1"]
		if matches != (c.want != nil) || matches && !reflect.DeepEqual(got, *c.want) {
			t.Errorf("%s: %+v, matches %v", c.name, got, matches)
		}
	}
}

func TestRobotHandler_IgnoresHeartbeats(t *testing.T) {
	before := robotWith()
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Robot)
		want   bool
	}{
		{"a heartbeat", func(r *v1alpha1.Robot) { r.Status.LastHeartbeatTime = &metav1.MicroTime{Time: noon} }, true},
		{"what its processor does", func(r *v1alpha1.Robot) { r.Status.DeviceInfo.CPU = &v1alpha1.CPU{UsagePercent: 99} }, true},
		{"its phase", func(r *v1alpha1.Robot) { r.Status.Phase = "Offline" }, false},
		{"whom it serves", func(r *v1alpha1.Robot) { r.Labels = sharedWith("ns2") }, false},
		{"its revocation", func(r *v1alpha1.Robot) { r.Spec.Identity = &v1alpha1.RobotIdentitySpec{Revoked: true} }, false},
		{"its labels", func(r *v1alpha1.Robot) { r.Labels = map[string]string{"a": "b"} }, false},
		{"its end", func(r *v1alpha1.Robot) { r.DeletionTimestamp = &metav1.Time{Time: noon} }, false},
	} {
		after := robotWith(c.change)
		if got := apiconv.IsSameRobot(&before, &after); got != c.want {
			t.Errorf("%s: IsSameRobot is %v", c.name, got)
		}
	}
}

// A robot gets one replica, whatever is on its way: names alone do not say whose
// a replica is.
func TestPlan_OneReplicaPerRobot(t *testing.T) {
	w := newInput(1)
	w.Job.Spec.Type = v1alpha1.JobTypeSystem
	w.Fleet = map[string]RobotMatch{"r0": {Schedulable: true}, "r1": {Schedulable: true}}
	w.Members = []Member{{Name: "j-g-3-t", Task: "t", Index: 3, Robot: "r1"}, {Name: "j-g-5-t", Task: "t", Index: 5, Robot: "r1"}}
	w.Tasks.Total = 2
	w.Tasks.AddTasks("pending", 2)
	got := Plan(noon, Config{}.WithDefaults(), w)
	if len(got.Complete) != 1 || got.Complete[0].Robot != "r0" || got.Complete[0].Index != 0 {
		t.Errorf("creates %+v", got.Complete)
	}
	if !slices.Equal(got.Delete, []string{"j-g-5-t"}) || got.Status.TotalTasks != 2 || got.Status.PendingTasks != 2 {
		t.Errorf("deletes %v, %+v", got.Delete, got.Status.TaskCounts)
	}
	w.CreatingTasks = 1
	if got := Plan(noon, Config{}.WithDefaults(), w); len(got.Complete) != 0 {
		t.Errorf("while a Task is being created it creates %+v", got.Complete)
	}
}

// The watch may show what we have changed already as it was before.
func TestGroupCounts_IgnoreOlderVersions(t *testing.T) {
	task := newInput(1, func(w *Input) { w.Revisions = map[string]string{"t": "a"} })
	old := task.newTaskBuilder().buildTask("j-g-0-t", 0, &task.Group.Spec.Tasks[0], robotNamed("r1"))
	old.ResourceVersion = "99"
	evicted := old.DeepCopy()
	evicted.ResourceVersion, evicted.Spec.EvictAttempt = "100", 1
	ta := newGroupCounts()
	ta.withGroup("g", func(m *groupTasks) {
		m.recordTask(noon, evicted)
		m.recordTask(noon, old)
		if got := slices.Collect(maps.Values(m.records)); len(got) != 1 || got[0].evict != 1 {
			t.Errorf("robots %+v", got)
		}
	})
}

func robotNamed(name string) placement.Robot { return placement.Robot{Name: name} }
