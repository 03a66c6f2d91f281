package isolation

import (
	"slices"
	"testing"
)

func TestParseMount_ReadsFields(t *testing.T) {
	for line, want := range map[string]mountInfo{
		"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue": {
			Device: "98:0", Root: "/mnt1", Mountpoint: "/mnt2", FSType: "ext3", VFSOptions: "rw,errors=continue"},
		`30 24 0:26 / /a\040b\134c rw - cgroup none rw,cpu,cpuacct`: {
			Device: "0:26", Root: "/", Mountpoint: `/a b\c`, FSType: "cgroup", VFSOptions: "rw,cpu,cpuacct"},
		"31 24 0:27 / /x rw shared:1 master:2 propagate_from:3 - tmpfs  rw,size=1k": { // a source may be empty
			Device: "0:27", Root: "/", Mountpoint: "/x", FSType: "tmpfs", VFSOptions: "rw,size=1k"},
		`32 24 0:28 / /end\04 rw - tmpfs tmpfs rw`: {Device: "0:28", Root: "/", Mountpoint: `/end\04`, FSType: "tmpfs", VFSOptions: "rw"},
	} {
		if got, err := parseMount(line); err != nil || got != want {
			t.Errorf("%s\nis read as %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "36 35 98:0 /mnt1 /mnt2 rw", "36 35 98:0 /mnt1 - ext3 /dev/root rw"} {
		if got, err := parseMount(line); err == nil {
			t.Errorf("%q is read as %+v, want an error", line, got)
		}
	}
}

func TestReadMounts_FindsProc(t *testing.T) {
	for _, path := range []string{processMounts, threadMounts} {
		mounts, err := readMounts(path)
		if err != nil {
			t.Fatal(err)
		}
		isProc := func(m mountInfo) bool { return m.Mountpoint == "/proc" && m.FSType == "proc" }
		if !slices.ContainsFunc(mounts, isProc) {
			t.Errorf("%s has no /proc, only %+v", path, mounts)
		}
	}
}
