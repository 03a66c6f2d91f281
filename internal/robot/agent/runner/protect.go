package runner

import (
	"errors"
	"os"
	"path/filepath"

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// TaskDirs returns the directories that contain everything that tasks write.
func (p StateDir) TaskDirs() (dirs []string) {
	for _, name := range []string{tasksDir, tmpDir, diskDir, stickyDir} {
		dirs = append(dirs, filepath.Join(string(p), name))
	}
	return dirs
}

// ProtectTaskDirs makes setuid programs and device files that a task of root leaves in its
// directories ineffective, also for the other users of the robot.
func (p StateDir) ProtectTaskDirs() error {
	var errs []error
	for _, dir := range p.TaskDirs() {
		err := os.MkdirAll(dir, 0o711)
		if err == nil {
			err = isolation.ProtectDir(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// UnprotectTaskDirs undoes ProtectTaskDirs, so that the state directory can be deleted.
func (p StateDir) UnprotectTaskDirs() error {
	var errs []error
	for _, dir := range p.TaskDirs() {
		errs = append(errs, isolation.UnprotectDir(dir))
	}
	return errors.Join(errs...)
}
