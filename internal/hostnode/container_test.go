package hostnode

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

func TestIdentityOf_ContainerOverridesPod(t *testing.T) {
	one, two, group := ptr.To[int64](1), ptr.To[int64](2), ptr.To[int64](77)
	pod := &corev1.PodSecurityContext{RunAsUser: one, RunAsGroup: one, RunAsNonRoot: ptr.To(true), FSGroup: group, SupplementalGroups: []int64{5, 6}}
	for _, c := range []struct {
		name string
		pod  *corev1.PodSecurityContext
		own  *corev1.SecurityContext
		want identity
	}{
		{"nothing is set", nil, nil, identity{}},
		{"only the pod", pod, nil, identity{one, one, true, []uint32{5, 6, 77}}},
		{"only the container", nil, &corev1.SecurityContext{RunAsUser: two, RunAsNonRoot: ptr.To(true)}, identity{uid: two, notRoot: true}},
		{"both", pod, &corev1.SecurityContext{RunAsUser: two, RunAsNonRoot: ptr.To(false)}, identity{two, one, false, []uint32{5, 6, 77}}},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: c.pod}}
		if got := identityOf(p, &corev1.Container{SecurityContext: c.own}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestUserOf(t *testing.T) {
	me, other := int64(os.Geteuid()), int64(os.Geteuid())+4321
	all, none := isolation.Host{Allowed: []isolation.Fact{isolation.FactUser}}, isolation.Host{}
	uid := func(n int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &n} }
	for _, c := range []struct {
		name  string
		own   *corev1.SecurityContext
		host  isolation.Host
		want  *isolation.User
		error string
	}{
		{"no user is set", nil, all, nil, ""},
		{"another user", uid(other), all, &isolation.User{UID: uint32(other)}, ""},
		{"another user, which the host cannot change to", uid(other), none, nil, "hostnode runs without root"},
		{"the node's own user", uid(me), none, nil, ""},
		{"another group", &corev1.SecurityContext{RunAsGroup: ptr.To[int64](7)}, all, &isolation.User{UID: uint32(me), GID: 7}, ""},
		{"root against runAsNonRoot", &corev1.SecurityContext{RunAsUser: ptr.To[int64](0), RunAsNonRoot: ptr.To(true)}, all, nil, "set runAsUser"},
		{"another user with runAsNonRoot", &corev1.SecurityContext{RunAsUser: &other, RunAsNonRoot: ptr.To(true)}, all, &isolation.User{UID: uint32(other)}, ""},
	} {
		got, err := userOf(&corev1.Pod{}, &corev1.Container{SecurityContext: c.own}, c.host)
		if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %+v, %v; want %+v, %q", c.name, got, err, c.want, c.error)
		}
	}
}

func TestOwnerOf_FollowsFSGroup(t *testing.T) {
	all := isolation.Host{Allowed: []isolation.Fact{isolation.FactUser}}
	group := &corev1.PodSecurityContext{FSGroup: ptr.To[int64](77)}
	for _, c := range []struct {
		name string
		in   *corev1.PodSecurityContext
		host isolation.Host
		want *owner
	}{
		{"no security context", nil, all, nil},
		{"no fsGroup", &corev1.PodSecurityContext{}, all, nil},
		{"an fsGroup", group, all, &owner{-1, 77}},
		{"an fsGroup that the node cannot assign", group, isolation.Host{}, nil},
	} {
		if got := ownerOf(&corev1.Pod{Spec: corev1.PodSpec{SecurityContext: c.in}}, c.host); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestLimitsOf(t *testing.T) {
	c := &corev1.Container{Resources: corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("1Mi")},
	}}
	if got, want := limitsOf(c), (isolation.Limits{CPU: 1500, CPUWeight: 250, Memory: 1 << 30}); got != want {
		t.Errorf("limits are %+v, want %+v", got, want)
	}
	if got := limitsOf(&corev1.Container{}); got != (isolation.Limits{}) {
		t.Errorf("limits are %+v, want none", got)
	}
}

func TestGracePeriod(t *testing.T) {
	for _, c := range []struct {
		spec, deletion *int64
		want           time.Duration
	}{
		{nil, nil, 30 * time.Second},
		{ptr.To[int64](5), nil, 5 * time.Second},
		{ptr.To[int64](5), ptr.To[int64](60), time.Minute},
		{ptr.To[int64](5), ptr.To[int64](0), time.Second},
		{ptr.To[int64](0), nil, time.Second},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: c.spec}}
		pod.DeletionGracePeriodSeconds = c.deletion
		if got := (&worker{podState: podState{pod: pod}}).gracePeriod(); got != c.want {
			t.Errorf("of %v and %v: %v, want %v", c.spec, c.deletion, got, c.want)
		}
	}
}

func TestPodHostname(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct{ name, hostname, want string }{{"p", "", "p"}, {"p", "h", "h"}, {long, "", long[:63]}} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Hostname: c.hostname}}
		pod.Name = c.name
		if got := podHostname(pod); got != c.want {
			t.Errorf("of %q and %q: %q, want %q", c.name, c.hostname, got, c.want)
		}
	}
}

func TestResolvePort(t *testing.T) {
	to := target{container: &corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}}}}
	for in, want := range map[intstr.IntOrString]string{intstr.FromInt32(80): "80", intstr.FromString("metrics"): "9090"} {
		if got, err := to.resolvePort(in); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %s", in.String(), got, err, want)
		}
	}
	if got, err := to.resolvePort(intstr.FromString("none")); err == nil || err.Error() != `container c has no port "none"` {
		t.Errorf("an unknown port: %q, %v", got, err)
	}
}

func TestExplainUnsupported(t *testing.T) {
	at := func(volume, path string) corev1.VolumeMount { return corev1.VolumeMount{Name: volume, MountPath: path} }
	pod := func(v corev1.VolumeSource, mounts ...corev1.VolumeMount) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			Volumes:        []corev1.Volume{{Name: "v", VolumeSource: v}},
			InitContainers: []corev1.Container{{Name: "i", Command: []string{"true"}}},
			Containers:     []corev1.Container{{Name: "c", Command: []string{"true"}, VolumeMounts: mounts}},
		}}
	}
	noCommand := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	noCommand.Spec.InitContainers[0].Command = nil
	host := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}
	part := at("v", "/data")
	part.SubPath = "part"
	for _, c := range []struct {
		name                  string
		in                    *corev1.Pod
		withMounts, withoutMs string // parts of the reason; empty: accepted
	}{
		{"no mounts", pod(host), "", ""},
		{"an init container without a command", noCommand, "container i has no command", "container i has no command"},
		{"an unknown kind of volume", pod(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), "volume v has a type", "volume v has a type"},
		{"a hostPath at its own path", pod(host, at("v", "/data/")), "", ""},
		{"a hostPath at another path", pod(host, at("v", "/files")), "", "container c mounts volume v at /files"},
		{"a part of a hostPath", pod(host, part), "", "container c mounts volume v at /data"},
		{"an emptyDir", pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, at("v", "/data")), "", "container c mounts volume v at /data"},
		{"the token of the service account", pod(host, at("kube-api-access", tokenDir)), "", ""},
	} {
		for mounts, want := range map[bool]string{true: c.withMounts, false: c.withoutMs} {
			if got := explainUnsupported(c.in, mounts); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
				t.Errorf("%s, mounts %v: %q, want %q", c.name, mounts, got, want)
			}
		}
	}
}
