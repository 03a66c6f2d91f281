package agent

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDiskHealth(t *testing.T) {
	const gib = 1 << 30
	disk := func(size, free uint64) unix.Statfs_t {
		return unix.Statfs_t{Bsize: 4096, Blocks: size / 4096, Bavail: free / 4096, Files: 1000, Ffree: 900}
	}
	inodes := func(all, free uint64) unix.Statfs_t {
		s := disk(100*gib, 50*gib)
		s.Files, s.Ffree = all, free
		return s
	}
	readOnly := disk(100*gib, 50*gib)
	readOnly.Flags = unix.ST_RDONLY
	for _, c := range []struct {
		name                       string
		disk                       unix.Statfs_t
		err                        error
		was                        bool
		unwritable                 bool
		wantPressure, wantReadOnly bool
	}{
		{name: "a disk with room", disk: disk(100*gib, 50*gib)},
		{name: "a large disk needs one GiB", disk: disk(1000*gib, gib)},
		{name: "and not less", disk: disk(1000*gib, gib-4096), wantPressure: true},
		{name: "a small disk needs a twentieth", disk: disk(gib, gib/20+4096)},
		{name: "and not less", disk: disk(gib, gib/21), wantPressure: true},
		{name: "after it was almost full it needs half as much again", disk: disk(1000*gib, gib+gib/4), was: true, wantPressure: true},
		{name: "and has recovered then", disk: disk(1000*gib, 2*gib), was: true},
		{name: "few inodes", disk: inodes(1000, 49), wantPressure: true},
		{name: "a file system without a limit of inodes", disk: inodes(0, 0)},
		{name: "a file system that was remounted read-only", disk: readOnly, wantReadOnly: true},
		{name: "a journal that could not be written", disk: disk(100*gib, 50*gib), unwritable: true, wantReadOnly: true},
		{name: "a disk that cannot be read keeps the last result", err: errors.New("EIO"), was: true, wantPressure: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDiskHealth("dir", func() bool { return !c.unwritable })
			d.underPressure = c.was
			d.statfs = func(_ string, s *unix.Statfs_t) error { *s = c.disk; return c.err }
			if pressure, readOnly := d.readHealth(); pressure != c.wantPressure || readOnly != c.wantReadOnly {
				t.Errorf("disk pressure %t, journal read-only %t; want %t, %t", pressure, readOnly, c.wantPressure, c.wantReadOnly)
			}
		})
	}
}
