package hostnode

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// objects is a source with fixed objects in the namespace n.
type objects struct {
	maps    map[string]corev1.ConfigMap
	secrets map[string]map[string][]byte
	token   string
}

func (o *objects) getConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if m, ok := o.maps[name]; ok && namespace == "n" {
		return &m, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (o *objects) getSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if data, ok := o.secrets[name]; ok && namespace == "n" {
		return &corev1.Secret{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (o *objects) requestToken(_ context.Context, pod *corev1.Pod, audience string, seconds *int64) (token, error) {
	if o.token == "" {
		return token{}, errors.New("no tokens")
	}
	life := time.Duration(ptr.Deref(seconds, 3600)) * time.Second
	return token{text: o.token + " of " + pod.Name + " for " + audience + " " + life.String()}, nil
}

func testObjects() *objects {
	return &objects{
		maps: map[string]corev1.ConfigMap{
			"settings": {Data: map[string]string{"speed": "3", "mode": "$(A)"}, BinaryData: map[string][]byte{"bin": {0, 1}}},
			"odd":      {Data: map[string]string{"a=b": "1", "nul": "x\x00y", "fine": "z"}},
		},
		secrets: map[string]map[string][]byte{"password": {"user": []byte("me"), "key": []byte("hidden")}},
		token:   "jwt",
	}
}

var nodeResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")}

// namedPod is podStateOf with the fields that env and downwardAPI volumes refer to.
func namedPod() *podState {
	w := podStateOf(corev1.RestartPolicyAlways, nil)
	w.pod.Labels, w.pod.Annotations = map[string]string{"b": "2", "a": "1"}, map[string]string{"note": `say "hi"`}
	w.pod.Spec.NodeName, w.pod.Spec.ServiceAccountName = "node-1", "default"
	w.pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")},
	}
	return w
}

func fromField(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func fromMap(name, key string, optional *bool) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func fromSecret(name, key string, optional *bool) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func allOfMap(name, prefix string, optional *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: optional}}
}

func allOfSecret(name string, optional *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: optional}}
}

func TestBuildEnv(t *testing.T) {
	yes := ptr.To(true)
	type vars = map[string]string
	limit := &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")}}
	for _, c := range []struct {
		name string
		from []corev1.EnvFromSource
		env  []corev1.EnvVar
		want vars // in addition to BASE
	}{
		{"no variables", nil, nil, vars{}},
		{"a value", nil, []corev1.EnvVar{{Name: "A", Value: "1"}}, vars{"A": "1"}},
		{"an empty value", nil, []corev1.EnvVar{{Name: "A"}}, vars{"A": ""}},
		{"a value overrides the base environment", nil, []corev1.EnvVar{{Name: "BASE", Value: "2"}}, vars{"BASE": "2"}},
		{"a reference to the base environment", nil, []corev1.EnvVar{{Name: "BASE", Value: "$(BASE):/opt"}}, vars{"BASE": "base:/opt"}},
		{"a reference to an earlier variable", nil, []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)-$(A)"}}, vars{"A": "1", "B": "1-1"}},
		{"a reference to a later variable", nil, []corev1.EnvVar{{Name: "B", Value: "$(A)"}, {Name: "A", Value: "1"}}, vars{"A": "1", "B": "$(A)"}},
		{"an escaped reference", nil, []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$$(A)"}}, vars{"A": "1", "B": "$(A)"}},
		{"a field", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromField("metadata.name")}}, vars{"A": "p"}},
		{"a resource", nil, []corev1.EnvVar{{Name: "A", ValueFrom: limit}}, vars{"A": "1500"}},
		{"a key of a ConfigMap", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromMap("settings", "speed", nil)}}, vars{"A": "3"}},
		{"a key of a Secret", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromSecret("password", "key", nil)}}, vars{"A": "hidden"}},
		{"referenced values are not expanded", nil, []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", ValueFrom: fromMap("settings", "mode", nil)}}, vars{"A": "1", "B": "$(A)"}},
		{"an optional ConfigMap that is missing", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromMap("none", "k", yes)}}, vars{}},
		{"an optional key that is missing", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromMap("settings", "none", yes)}}, vars{}},
		{"an optional Secret that is missing", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromSecret("none", "k", yes)}}, vars{}},
		{"all of a ConfigMap", []corev1.EnvFromSource{allOfMap("settings", "", nil)}, nil, vars{"speed": "3", "mode": "$(A)"}},
		{"all of a ConfigMap with a prefix", []corev1.EnvFromSource{allOfMap("settings", "S_", nil)}, nil, vars{"S_speed": "3", "S_mode": "$(A)"}},
		{"all of a Secret", []corev1.EnvFromSource{allOfSecret("password", nil)}, nil, vars{"user": "me", "key": "hidden"}},
		{"keys that cannot be variables", []corev1.EnvFromSource{allOfMap("odd", "", nil)}, nil, vars{"fine": "z"}},
		{"all of optional objects that are missing", []corev1.EnvFromSource{allOfMap("none", "", yes), allOfSecret("none", yes)}, nil, vars{}},
		{"env overrides envFrom", []corev1.EnvFromSource{allOfMap("settings", "", nil)}, []corev1.EnvVar{{Name: "speed", Value: "$(speed)0"}}, vars{"speed": "30", "mode": "$(A)"}},
		{"a later envFrom overrides an earlier one", []corev1.EnvFromSource{allOfSecret("password", nil), allOfMap("fast", "", nil)}, nil, vars{"user": "you", "key": "hidden"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testObjects()
			o.maps["fast"] = corev1.ConfigMap{Data: vars{"user": "you"}}
			base := vars{"BASE": "base"}
			want := vars{"BASE": "base"}
			for k, v := range c.want {
				want[k] = v
			}
			w := namedPod()
			container := w.pod.Spec.Containers[0]
			container.EnvFrom, container.Env = c.from, c.env
			got, err := w.buildEnv(t.Context(), o, &container, base, nodeResources)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("environment is %v, %v; want %v", got, err, want)
			}
			if len(base) != 1 || base["BASE"] != "base" {
				t.Errorf("the base environment has changed to %v", base)
			}
		})
	}
}

func TestBuildEnv_Errors(t *testing.T) {
	no := ptr.To(false)
	for _, c := range []struct {
		name string
		from []corev1.EnvFromSource
		env  []corev1.EnvVar
		want string
	}{
		{"a missing ConfigMap", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromMap("none", "k", nil)}}, `env A: configmaps "none" not found`},
		{"a ConfigMap that is not optional", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromMap("none", "k", no)}}, `env A: configmaps "none" not found`},
		{"a missing key of a ConfigMap", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromMap("settings", "none", nil)}}, "env A: couldn't find key none in ConfigMap settings"},
		{"a missing Secret", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromSecret("none", "k", nil)}}, `env A: secrets "none" not found`},
		{"a missing key of a Secret", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromSecret("password", "none", no)}}, "env A: couldn't find key none in Secret password"},
		{"an unknown field", nil, []corev1.EnvVar{{Name: "A", ValueFrom: fromField("status.phase")}}, `env A: fieldPath "status.phase"`},
		{"an empty valueFrom", nil, []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{}}}, "env A: valueFrom must have one of"},
		{"all of a missing ConfigMap", []corev1.EnvFromSource{allOfMap("none", "", nil)}, nil, `configmaps "none" not found`},
		{"all of a missing Secret", []corev1.EnvFromSource{allOfSecret("none", nil)}, nil, `secrets "none" not found`},
	} {
		w := namedPod()
		container := w.pod.Spec.Containers[0]
		container.EnvFrom, container.Env = c.from, c.env
		got, err := w.buildEnv(t.Context(), testObjects(), &container, map[string]string{}, nodeResources)
		if _, isConfig := errors.AsType[configError](err); !isConfig || got != nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want a configError %q", c.name, got, err, c.want)
		}
	}
}

func TestTroubleOf_ChoosesReason(t *testing.T) {
	cause := errors.New("why")
	for name, c := range map[string]struct {
		err           error
		reason, event string
	}{
		"a configuration":  {configError{cause}, "CreateContainerConfigError", "Failed"},
		"a volume":         {volumeError{cause}, "ContainerCreating", "FailedMount"},
		"any other reason": {cause, "CreateContainerError", "Failed"},
	} {
		got := newStartFailure(c.err)
		if *got != *waiting(c.reason, "why") || eventReasonFor(c.err) != c.event {
			t.Errorf("%s: %+v and event %s, want %s and %s", name, got, eventReasonFor(c.err), c.reason, c.event)
		}
	}
}

func TestBuildCommand(t *testing.T) {
	env := map[string]string{"A": "1", "DIR": "/opt"}
	for _, c := range []struct {
		command, args, want []string
	}{
		{[]string{"run"}, nil, []string{"run"}},
		{[]string{"$(DIR)/run"}, []string{"--a=$(A)", "$(NONE)", "$$(A)"}, []string{"/opt/run", "--a=1", "$(NONE)", "$(A)"}},
		{[]string{"sh", "-c"}, []string{"echo $A"}, []string{"sh", "-c", "echo $A"}},
	} {
		got, err := buildCommand(&corev1.Container{Name: "c", Command: c.command, Args: c.args}, env)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v %v: %q, %v; want %q", c.command, c.args, got, err, c.want)
		}
	}
	_, err := buildCommand(&corev1.Container{Name: "c", Image: "web:2", Args: []string{"x"}}, env)
	if err == nil || !strings.Contains(err.Error(), "container c has no command") || !strings.Contains(err.Error(), `"web:2"`) {
		t.Errorf("without a command: %v", err)
	}
}

func TestHostEnvironment(t *testing.T) {
	for _, name := range append(hostVariables, "SECRET") {
		t.Setenv(name, "")
	}
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("SECRET", "hidden")
	const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if got, want := hostEnvironment(), (map[string]string{"LANG": "C.UTF-8", "PATH": path}); !reflect.DeepEqual(got, want) {
		t.Errorf("environment is %v, want %v", got, want)
	}
	t.Setenv("PATH", "/opt/bin")
	if got := hostEnvironment()["PATH"]; got != "/opt/bin" {
		t.Errorf("PATH is %q, want that of the node", got)
	}
}

func TestFieldValue(t *testing.T) {
	w := namedPod()
	for path, want := range map[string]string{
		"metadata.name": "p", "metadata.namespace": "n", "metadata.uid": "u", "spec.nodeName": "node-1", "spec.serviceAccountName": "default",
		"status.hostIP": "127.0.0.1", "status.hostIPs": "127.0.0.1", "status.podIP": "10.0.0.1", "status.podIPs": "10.0.0.1",
		"metadata.labels": "a=\"1\"\nb=\"2\"", "metadata.annotations": `note="say \"hi\""`,
		"metadata.labels['a']": "1", "metadata.labels['none']": "", "metadata.annotations['note']": `say "hi"`,
	} {
		if got, err := w.fieldValue(path); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "spec.priority", "metadata.name['a']", "metadata.labels['a'", "metadata.labels[a]"} {
		if got, err := w.fieldValue(path); err == nil {
			t.Errorf("%s is %q, want an error", path, got)
		}
	}
}

func TestResourceOf(t *testing.T) {
	for _, c := range []struct{ container, resource, divisor, want string }{
		{"", "limits.cpu", "0", "2"}, // 1500m in cores, rounded up
		{"", "limits.cpu", "1m", "1500"},
		{"a", "requests.cpu", "1m", "250"},
		{"", "requests.cpu", "1", "1"},
		{"", "requests.memory", "0", "1073741824"},
		{"", "requests.memory", "1Mi", "1024"},
		{"", "requests.memory", "1G", "2"},
		{"", "limits.memory", "1Gi", "16"}, // the node's
		{"b", "limits.cpu", "1", "8"},      // the node's
		{"b", "requests.cpu", "1m", "0"},
	} {
		ref := &corev1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource, Divisor: resource.MustParse(c.divisor)}
		if got, err := namedPod().resourceOf(ref, "a", nodeResources); err != nil || got != c.want {
			t.Errorf("%s of %q by %s is %q, %v; want %s", c.resource, c.container, c.divisor, got, err, c.want)
		}
	}
	for _, c := range []struct{ container, resource, want string }{
		{"none", "limits.cpu", `container "none"`}, {"a", "cpu", `resource "cpu"`}, {"a", "usage.cpu", `resource "usage.cpu"`},
	} {
		got, err := namedPod().resourceOf(&corev1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource}, "a", nodeResources)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %q is %q, %v; want an error about %s", c.resource, c.container, got, err, c.want)
		}
	}
}
