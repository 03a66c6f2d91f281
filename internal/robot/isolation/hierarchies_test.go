package isolation

import "testing"

func TestParseOwnPaths(t *testing.T) {
	own := parseOwnPaths("9:name=systemd:/a:b\n5:cpu,cpuacct:/system.slice/k8s4r.service\n4:memory:/m\n0::/user.slice\nnoise\n")
	var h hierarchies
	h.v1, h.mounts = map[string]string{}, map[string]string{}
	for _, m := range []mountInfo{
		{FSType: "cgroup", Mountpoint: "/sys/fs/cgroup/cpu,cpuacct", Root: "/", VFSOptions: "rw,cpu,cpuacct"},
		{FSType: "cgroup", Mountpoint: "/sys/fs/cgroup/memory", Root: "/docker/1", VFSOptions: "rw,memory"},
		{FSType: "cgroup", Mountpoint: "/sys/fs/cgroup/systemd", Root: "/", VFSOptions: "rw,name=systemd"},
		{FSType: "cgroup2", Mountpoint: "/sys/fs/cgroup/unified", Root: "/", VFSOptions: "rw"},
		{FSType: "cgroup2", Mountpoint: "/run/other", Root: "/", VFSOptions: "rw"},
	} {
		h.addMount(m, own)
	}
	for controller, want := range map[string]string{
		cpu: "/sys/fs/cgroup/cpu,cpuacct/system.slice/k8s4r.service", cpuacct: "/sys/fs/cgroup/cpu,cpuacct/system.slice/k8s4r.service",
		memory: "/sys/fs/cgroup/memory", pids: "",
	} {
		if h.v1[controller] != want {
			t.Errorf("%s: we are at %q, want %q", controller, h.v1[controller], want)
		}
	}
	if h.v2 != "/sys/fs/cgroup/unified" || h.own != "/sys/fs/cgroup/unified/user.slice" {
		t.Errorf("version 2: %q %q", h.v2, h.own)
	}
	if (&Cgroup{V1: h.v1}).version().listDirs()[0] != "/sys/fs/cgroup/cpu,cpuacct" && len((&Cgroup{V1: h.v1}).version().listDirs()) != 2 {
		t.Error("controllers that are mounted together are made twice")
	}
}

func TestHierarchies_ChooseVersionAndParent(t *testing.T) {
	all := fakeV2(t, map[string]string{"cgroup.controllers": "cpu io memory pids\n"}).V2
	none := fakeV2(t, map[string]string{"cgroup.controllers": "hugetlb\n"}).V2
	v1 := map[string]string{memory: "/m"}
	for _, tc := range []struct {
		name   string
		in     hierarchies
		euid   int
		want2  bool
		parent string
	}{
		{"only v2, root: at the top, which survives a service restart", hierarchies{v2: all, own: all + "/s"}, 0, true, all},
		{"only v2, not root: the delegated cgroup", hierarchies{v2: all, own: all + "/s"}, 1000, true, all + "/s"},
		{"an agent in its leaf uses the cgroup above", hierarchies{v2: all, own: all + "/s/agent"}, 1000, true, all + "/s"},
		{"a hybrid host has its controllers in v1", hierarchies{v2: none, own: none, v1: v1}, 0, false, none},
		{"v2 without controllers is used if there is no v1", hierarchies{v2: none, own: none}, 0, true, none},
		{"only v1", hierarchies{v1: v1}, 0, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.in.usesVersion2(); got != tc.want2 {
				t.Errorf("version2() = %v", got)
			}
			if got := tc.in.parentGroup(tc.euid); got != tc.parent {
				t.Errorf("parent() = %q, want %q", got, tc.parent)
			}
		})
	}
}
