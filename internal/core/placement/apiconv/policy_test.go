package apiconv

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func drawDefinition(t *rapid.T) v1alpha1.TaskDefinition {
	text := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	d := v1alpha1.TaskDefinition{
		Name: "t", Driver: text("driver", "exec", "raw_exec", "docker", "java", "podman"), User: text("user", "", "root", "pilot"),
		Env: map[string]string{text("env", "PATH", "HOME", "LD_PRELOAD"): "x"},
	}
	if rapid.Bool().Draw(t, "secrets") {
		d.SecretEnv = map[string]v1alpha1.SecretKey{text("secret", "LD_AUDIT", "KEY"): {SecretName: "s", Key: "k"}}
	}
	if rapid.Bool().Draw(t, "resources") {
		d.Resources = &v1alpha1.Resources{Devices: map[string]resource.Quantity{text("device", "arm", "camera"): resource.MustParse("1"), "laser": resource.MustParse("2")}}
	}
	switch text("config", "exec", "docker", "java", "none") {
	case "exec":
		d.Config.ExecConfig = &v1alpha1.ExecConfig{Command: text("command", "/opt/x", "sh", "${meta.x}")}
	case "docker":
		d.Config.DockerConfig = &v1alpha1.DockerConfig{Image: text("image", "alpine", "a/b"), NetworkMode: text("network", "", "host"), Volumes: []v1alpha1.VolumeMount{v1alpha1.VolumeMount(text("volume", "/srv:/s", "/etc:/e:ro"))}}
	case "java":
		d.Config.JavaConfig = &v1alpha1.JavaConfig{JarPath: "x.jar"}
	}
	return d
}

// TestSubjectOf_IsWhatTheRobotEvaluates shows that placement and the agent, which gets the Task as JSON,
// evaluate the same.
func TestSubjectOf_IsWhatTheRobotEvaluates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		task := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: rapid.SampledFrom([]string{"prod", "test"}).Draw(t, "namespace")}}
		task.Spec.TaskDefinition = drawDefinition(t)
		b, err := json.Marshal(map[string]any{"action": "create", "task": task})
		if err != nil {
			t.Fatal(err)
		}
		sent, err := wire.Decode[wire.Dispatch](b)
		if err != nil {
			t.Fatal(err)
		}
		here, there := SubjectOf(task.Namespace, &task.Spec.TaskDefinition), sent.Task.PolicySubject()
		if here.Key() != there.Key() || TaskOf(task).Subject != there.Key() {
			t.Errorf("placement evaluates %s, the robot %s", here.Key(), there.Key())
		}
	})
}

// TestRobotFrom_KeepsPolicy shows that the rules of a robot survive the way through its object.
func TestRobotFrom_KeepsPolicy(t *testing.T) {
	p := policy.Policy{Allow: policy.Rules{
		Namespaces: []string{"a"}, Drivers: []string{}, Users: []string{"b"}, Root: new(false), Commands: []string{"c"},
		Images: []string{"d"}, Mounts: []string{"/e"}, Networks: []string{"f"}, Devices: []string{"g"},
	}, Problem: "h"}
	r := &v1alpha1.Robot{Status: v1alpha1.RobotStatus{Policy: &v1alpha1.RobotPolicy{Allow: v1alpha1.RobotRules(p.Allow), Problem: p.Problem}}}
	b, err := json.Marshal(r.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.Robot{}
	if err := json.Unmarshal(b, stored); err != nil || !reflect.DeepEqual(stored.Status.Policy, r.Status.Policy) {
		t.Fatalf("stored as %s, %v", b, err)
	}
	if !RobotFrom(stored).Equal(RobotFrom(r).Offer) || RobotFrom(r).Policy == nil || RobotFrom(&v1alpha1.Robot{}).Policy != nil {
		t.Error("the policy is lost")
	}
}
