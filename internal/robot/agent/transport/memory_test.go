package transport

import (
	"slices"
	"strings"
	"testing"
)

func TestFindCode(t *testing.T) {
	const maps = `00400000-00a93000 r-xp 00000000 fe:00 10715613 /usr/local/bin/k8s4r-agent
00a93000-012e5000 r--p 00693000 fe:00 10715613 /usr/local/bin/k8s4r-agent
012e5000-0134a000 rw-p 00ee5000 fe:00 10715613 /usr/local/bin/k8s4r-agent
386556000000-386556800000 rwxp 00000000 00:00 0
7f0800000000-7f0800001000 r-xp 00000000 00:00 0
7f080101d000-7f080101f000 r-xp 00000000 00:00 0 [vdso]
7f0900000000-7f0900002000 r-xp 00001000 fe:00 12 /a path (deleted)
`
	want := []mapping{{0x400000, 0xa93000}, {0x7f0900000000, 0x7f0900002000}}
	if found := findCode(strings.NewReader(maps)); !slices.Equal(found, want) {
		t.Errorf("found %x, want %x", found, want)
	}
}

func TestReleaseStartMemory_GoesOn(t *testing.T) {
	for range 3 {
		releaseStartMemory()
	}
}
