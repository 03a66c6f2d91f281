package hostnode

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func configMapVolume(v corev1.ConfigMapVolumeSource) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &v}
}

func projected(mode *int32, sources ...corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode, Sources: sources}}
}

func ref(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func tokenProjection(path string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: ptr.To[int64](600), Path: path}}
}

func asUser(w *podState) {
	w.pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000)}
}

func TestContentOf(t *testing.T) {
	file := func(mode fs.FileMode, data string) file { return file{[]byte(data), mode} }
	field := &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}
	memory := &corev1.ResourceFieldSelector{ContainerName: "a", Resource: "requests.memory", Divisor: resource.MustParse("1Mi")}
	const token = "jwt of p for vault 10m0s"
	for _, c := range []struct {
		name   string
		in     corev1.VolumeSource
		change func(*podState)
		want   content
	}{
		{"another kind of volume", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, nil, nil},
		{
			"all of a ConfigMap", configMapVolume(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings")}), nil,
			content{"speed": file(0o644, "3"), "mode": file(0o644, "$(A)"), "bin": file(0o644, "\x00\x01")},
		},
		{
			"items of a ConfigMap", configMapVolume(corev1.ConfigMapVolumeSource{
				LocalObjectReference: ref("settings"), DefaultMode: ptr.To[int32](0o440),
				Items: []corev1.KeyToPath{{Key: "speed", Path: "sub/../deep/speed"}, {Key: "mode", Path: "m", Mode: ptr.To[int32](0o400)}},
			}), nil,
			content{"deep/speed": file(0o440, "3"), "m": file(0o400, "$(A)")},
		},
		{
			"an optional item that is missing", configMapVolume(corev1.ConfigMapVolumeSource{
				LocalObjectReference: ref("settings"), Optional: ptr.To(true), Items: []corev1.KeyToPath{{Key: "none", Path: "n"}, {Key: "speed", Path: "s"}},
			}), nil,
			content{"s": file(0o644, "3")},
		},
		{"an optional ConfigMap that is missing", configMapVolume(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("none"), Optional: ptr.To(true)}), nil, content{}},
		{
			"a Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password", DefaultMode: ptr.To[int32](0o400)}}, nil,
			content{"user": file(0o400, "me"), "key": file(0o400, "hidden")},
		},
		{
			"fields of the pod", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: field}, {Path: "memory", ResourceFieldRef: memory, Mode: ptr.To[int32](0o600)},
			}}}, nil,
			content{"labels": file(0o644, "a=\"1\"\nb=\"2\""), "memory": file(0o600, "1024")},
		},
		{
			"projected", projected(ptr.To[int32](0o444),
				corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("settings"), Items: []corev1.KeyToPath{{Key: "speed", Path: "s"}}}},
				corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: ref("password"), Items: []corev1.KeyToPath{{Key: "user", Path: "u"}}}},
				corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "l", FieldRef: field}}}}), nil,
			content{"s": file(0o444, "3"), "u": file(0o444, "me"), "l": file(0o444, "a=\"1\"\nb=\"2\"")},
		},
		{"a token is only for its owner", projected(ptr.To[int32](0o644), tokenProjection("token")), nil, content{"token": file(0o600, token)}},
		{"another user can read a token", projected(ptr.To[int32](0o644), tokenProjection("token")), asUser, content{"token": file(0o644, token)}},
		{"a token without a default mode is only for its owner", projected(nil, tokenProjection("token")), asUser, content{"token": file(0o600, token)}},
		{
			"setuid is dropped", configMapVolume(corev1.ConfigMapVolumeSource{
				LocalObjectReference: ref("settings"), Items: []corev1.KeyToPath{{Key: "speed", Path: "s", Mode: ptr.To[int32](0o4755)}},
			}), nil,
			content{"s": file(0o755, "3")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := namedPod()
			if c.change != nil {
				c.change(w)
			}
			got, err := w.contentOf(t.Context(), testObjects(), &c.in, nodeResources)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("content is %v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestContentOf_Errors(t *testing.T) {
	for want, in := range map[string]corev1.VolumeSource{
		`configmaps "none" not found`:                            configMapVolume(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("none")}),
		"references non-existent key none of ConfigMap settings": configMapVolume(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings"), Items: []corev1.KeyToPath{{Key: "none", Path: "n"}}}),
		`secrets "none" not found`:                               {Secret: &corev1.SecretVolumeSource{SecretName: "none"}},
		"references non-existent key none of Secret password":    {Secret: &corev1.SecretVolumeSource{SecretName: "password", Items: []corev1.KeyToPath{{Key: "none", Path: "n"}}}},
		`fieldPath "spec.none"`:                                  {DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "n", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.none"}}}}},
		"the source of a projected volume must be":               projected(nil, corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}),
	} {
		if _, err := namedPod().contentOf(t.Context(), testObjects(), &in, nodeResources); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	noTokens := testObjects()
	noTokens.token = ""
	in := projected(nil, tokenProjection("token"))
	if _, err := namedPod().contentOf(t.Context(), noTokens, &in, nodeResources); err == nil || err.Error() != "no tokens" {
		t.Errorf("without a token: %v", err)
	}
}

func TestMayUseOtherUser(t *testing.T) {
	uid := ptr.To[int64](1000)
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		want   bool
	}{
		"no security context":              {func(*corev1.PodSpec) {}, false},
		"an empty one":                     {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{} }, false},
		"runAsUser of the pod":             {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: uid} }, true},
		"fsGroup of the pod":               {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: uid} }, true},
		"runAsUser of a container":         {func(s *corev1.PodSpec) { s.Containers[1].SecurityContext = &corev1.SecurityContext{RunAsUser: uid} }, true},
		"runAsUser of an init container":   {func(s *corev1.PodSpec) { s.InitContainers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: uid} }, true},
		"a container with another setting": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsGroup: uid} }, false},
	} {
		w := podStateOf(corev1.RestartPolicyAlways, nil)
		c.change(&w.pod.Spec)
		if got := w.mayUseOtherUser(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestCanRefresh(t *testing.T) {
	for _, c := range []struct {
		in   corev1.VolumeSource
		want bool
	}{
		{corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, true},
		{corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, true},
		{corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}, true},
		{corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}, true},
		{corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false},
		{corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, false},
	} {
		if got := canRefresh(&c.in); got != c.want {
			t.Errorf("%+v: %v, want %v", c.in, got, c.want)
		}
	}
}

func TestIsInside(t *testing.T) {
	for path, want := range map[string]bool{
		"a": true, "a/b": true, "": true, ".": true, "a/../b": true, "..a": true, "a/..": true, "...": true, "..data": true,
		"..": false, "../a": false, "a/../..": false, "a/../../b": false, "/": false, "/a": false, "./../a": false,
	} {
		if got := isInside(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

func TestWriteContent_RejectsPathsOutside(t *testing.T) {
	for _, name := range []string{"../out", "a/../../out", "/out", ".."} {
		dir := filepath.Join(t.TempDir(), "volume")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		err := writeContent(dir, content{"fine": {[]byte("1"), 0o644}, name: {[]byte("2"), 0o644}}, nil)
		if err == nil || !strings.Contains(err.Error(), "is outside the volume") {
			t.Errorf("%q: %v", name, err)
		}
		inside, _ := os.ReadDir(dir)
		outside, _ := os.ReadDir(filepath.Dir(dir))
		if len(inside) != 0 || len(outside) != 1 {
			t.Errorf("%q left %v and %v", name, inside, outside)
		}
	}
}

func TestLinkNames_RemovesObsoleteLinks(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []content{{"a": {}, "sub/b": {}, "sub/c": {}}, {"sub/c": {}, "d": {}}} {
		if err := c.linkNames(dir); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		links[e.Name()], _ = os.Readlink(filepath.Join(dir, e.Name()))
	}
	if want := (map[string]string{"sub": "..data/sub", "d": "..data/d"}); !reflect.DeepEqual(links, want) {
		t.Errorf("links are %v, want %v", links, want)
	}
}

func TestMatchesType(t *testing.T) {
	const dir, regular, socket, char, block = fs.ModeDir, fs.FileMode(0), fs.ModeSocket, fs.ModeDevice | fs.ModeCharDevice, fs.ModeDevice
	for kind, want := range map[corev1.HostPathType][5]bool{ // dir, regular, socket, char, block
		corev1.HostPathDirectory: {true, false, false, false, false},
		corev1.HostPathFile:      {false, true, false, false, false},
		corev1.HostPathSocket:    {false, false, true, false, false},
		corev1.HostPathCharDev:   {false, false, false, true, false},
		corev1.HostPathBlockDev:  {false, false, false, false, true},
		corev1.HostPathUnset:     {true, true, true, true, true},
	} {
		var got [5]bool
		for i, m := range []fs.FileMode{dir, regular, socket, char, block} {
			got[i] = matchesType(m|0o600, kind)
		}
		if got != want {
			t.Errorf("%q: %v, want %v", kind, got, want)
		}
	}
}

func TestPrepareHostPath(t *testing.T) {
	dir := t.TempDir()
	regular := filepath.Join(dir, "file")
	if err := os.WriteFile(regular, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		kind       corev1.HostPathType
		want       string // part of the error
	}{
		{"an unchecked path", filepath.Join(dir, "none"), corev1.HostPathUnset, ""},
		{"an existing directory", dir, corev1.HostPathDirectory, ""},
		{"a file instead of a directory", regular, corev1.HostPathDirectory, "is not a Directory"},
		{"an existing file", regular, corev1.HostPathFile, ""},
		{"a directory instead of a file", dir, corev1.HostPathFile, "is not a File"},
		{"a file instead of a socket", regular, corev1.HostPathSocket, "is not a Socket"},
		{"a missing file", filepath.Join(dir, "none"), corev1.HostPathFile, "hostPath type check failed"},
		{"a directory to be created", filepath.Join(dir, "new", "deep"), corev1.HostPathDirectoryOrCreate, ""},
		{"a file to be created", filepath.Join(dir, "created"), corev1.HostPathFileOrCreate, ""},
		{"a file that is not replaced", regular, corev1.HostPathFileOrCreate, ""},
	} {
		err := prepareHostPath(&corev1.HostPathVolumeSource{Path: c.path, Type: &c.kind})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := prepareHostPath(&corev1.HostPathVolumeSource{Path: filepath.Join(dir, "none")}); err != nil {
		t.Errorf("without a type: %v", err)
	}
	made, _ := os.Stat(filepath.Join(dir, "new", "deep"))
	created, _ := os.Stat(filepath.Join(dir, "created"))
	kept, _ := os.ReadFile(regular)
	_, missing := os.Stat(filepath.Join(dir, "none"))
	if made == nil || !made.IsDir() || created == nil || created.Size() != 0 || string(kept) != "kept" || !os.IsNotExist(missing) {
		t.Errorf("directory %v, file %v, content %q, missing path %v", made, created, kept, missing)
	}
}
