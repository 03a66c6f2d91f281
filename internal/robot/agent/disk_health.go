package agent

import "golang.org/x/sys/unix"

// The free space and inodes below which a disk is almost full: a twentieth of it, of which large disks
// need no more than reservedBytes.
const (
	reservedShare = 20
	reservedBytes = 1 << 30
)

// diskHealth evaluates the disk of the state directory, for heartbeats.
type diskHealth struct {
	dir             string
	canWriteJournal func() bool
	statfs          func(dir string, s *unix.Statfs_t) error
	underPressure   bool // by the last call
}

func newDiskHealth(dir string, canWriteJournal func() bool) *diskHealth {
	return &diskHealth{dir: dir, canWriteJournal: canWriteJournal, statfs: unix.Statfs}
}

// readHealth reports whether the disk is almost full, and whether the journal cannot be written. Once
// the disk was almost full, it must have half as much room again, so that the result does not
// alternate.
func (d *diskHealth) readHealth() (diskPressure, journalReadOnly bool) {
	var s unix.Statfs_t
	if err := d.statfs(d.dir, &s); err != nil {
		return d.underPressure, !d.canWriteJournal() // the directory may be on a device that was removed
	}
	d.underPressure = isAlmostFull(s, d.underPressure)
	return d.underPressure, s.Flags&unix.ST_RDONLY != 0 || !d.canWriteJournal()
}

// isAlmostFull reports whether less space or fewer inodes are free than reserved. File systems
// without a limit of inodes report none.
func isAlmostFull(s unix.Statfs_t, was bool) bool {
	space, free := min(s.Blocks*uint64(s.Bsize)/reservedShare, reservedBytes), s.Bavail*uint64(s.Bsize)
	inodes := s.Files / reservedShare
	if was {
		space, inodes = space*3/2, inodes*3/2
	}
	return free < space || s.Files > 0 && s.Ffree < inodes
}
