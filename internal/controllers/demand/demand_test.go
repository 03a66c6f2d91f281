package demand

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/placement"
)

func TestCapacity(t *testing.T) {
	device := &v1alpha1.DeviceInfo{CPU: &v1alpha1.CPU{LogicalCores: 4}, Memory: &v1alpha1.Memory{Total: 1 << 30}}
	says := func(pairs ...string) map[string]resource.Quantity {
		m := map[string]resource.Quantity{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = resource.MustParse(pairs[i+1])
		}
		return m
	}
	for _, c := range []struct {
		name       string
		inDevice   *v1alpha1.DeviceInfo
		inCapacity map[string]resource.Quantity
		want       placement.Room
	}{
		{"a robot that says nothing is bounded by places only", nil, nil, placement.Room{Tasks: 64, CPU: placement.Unlimited, Memory: placement.Unlimited}},
		{"a robot's own word counts", device, nil, placement.Room{Tasks: 64, CPU: 4000, Memory: 1 << 30}},
		{"the operator's word counts more", device, says("cpu", "500m", "memory", "1Mi", "tasks", "2"), placement.Room{Tasks: 2, CPU: 500, Memory: 1 << 20}},
		{"a robot may be given no place at all", nil, says("tasks", "0"), placement.Room{CPU: placement.Unlimited, Memory: placement.Unlimited}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &v1alpha1.Robot{Spec: v1alpha1.RobotSpec{Capacity: c.inCapacity}, Status: v1alpha1.RobotStatus{DeviceInfo: c.inDevice}}
			if got := Robot(r).Capacity; got != c.want {
				t.Errorf("capacity %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestLabelsOfTheSpecCountMore(t *testing.T) {
	r := &v1alpha1.Robot{Spec: v1alpha1.RobotSpec{Labels: map[string]string{"env": "prod"}}}
	r.Labels = map[string]string{"env": "test", "zone": "a"}
	if got := Robot(r).Labels; got["env"] != "prod" || got["zone"] != "a" {
		t.Errorf("labels %v", got)
	}
}

func TestTooLarge(t *testing.T) {
	spec := &v1alpha1.TaskSpec{TaskDefinition: v1alpha1.TaskDefinition{Name: "t", Env: map[string]string{"X": ""}}}
	if why := TooLarge(spec); why != "" {
		t.Errorf("a small task: %s", why)
	}
	spec.Env["X"] = strings.Repeat("x", MaxMessage)
	if why := TooLarge(spec); !strings.HasPrefix(why, "task t is 201 KiB as a message to a robot, more than 200 KiB") {
		t.Errorf("a large task: %q", why)
	}
}
