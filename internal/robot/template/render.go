// Package render makes the files of a task from templates, and fills in what
// its command and environment refer to.
//
// A template is a part of the job and may be anything: one that never ends,
// writes without end, or names files that are none of its business. Rendering
// is bounded in time and output, and sees nothing but its Data and the task's
// directory.
package render

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/taskdir"
)

const (
	// MaxOutput is how many bytes a template may make, and how many the
	// template itself, a file that it reads, or a text within it may have.
	MaxOutput = 1 << 20
	// MaxTime is how long one template may take.
	MaxTime = 10 * time.Second
)

// Template is one file of a task.
type Template struct {
	// Index of the template in the task's list, for errors.
	Index int
	// SourcePath of the template below the task's directory. Empty: it is
	// Embedded.
	SourcePath string
	// Embedded is the template itself.
	Embedded string
	// DestPath of the result below the task's directory.
	DestPath string
	// Perms of the result in octal. Empty: 0644.
	Perms string
	// LeftDelim and RightDelim replace {{ and }}. Empty: they do not.
	LeftDelim, RightDelim string
}

// Data is all that a template can see. It is its dot as well, so that
// {{ .Task.Name }} is the task's name.
type Data struct {
	// Env is the environment of the task.
	Env map[string]string
	// Meta of the job and its group.
	Meta map[string]string
	// Labels of the robot.
	Labels map[string]string
	// Attrs of the robot, such as os and cpu.cores.
	Attrs map[string]string
	Task  Task
}

// Task is what a template can say about the task that it is for.
type Task struct {
	Name, UID, Job, Group, Index, Robot string
	// Attempt counts from 1.
	Attempt int32
}

// Render writes the result of a template into dir, the task's directory, and
// tells whether that made a file with other content than before. The new file
// takes the place of the old one at once: no reader sees half of it.
//
// Its error is one sentence for the owner of the job that begins with
// templates[i], the template's line where it has one, and never a value from
// Data. Nothing has changed then.
func Render(ctx context.Context, t Template, d Data, dir string) (changed bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, t.explain(fmt.Errorf("open the task's directory: %w", err))
	}
	defer root.Close()
	f, err := t.plan()
	if err != nil {
		return false, t.explain(err)
	}
	text, err := t.text(root)
	if err != nil {
		return false, t.explain(err)
	}
	late := fmt.Errorf("took longer than %v", MaxTime)
	ctx, cancel := context.WithTimeoutCause(ctx, MaxTime, late)
	defer cancel()
	f.content, err = t.execute(ctx, text, d, root)
	if err != nil {
		return false, t.explain(err)
	}
	if changed, err = f.write(root); err != nil {
		return false, t.explain(fmt.Errorf("destPath: %w", err))
	}
	return changed, nil
}

func (t Template) name() string { return fmt.Sprintf("templates[%d]", t.Index) }

// explain puts the template's name in front of an error that lacks it. Those
// of the template language have it, with the line.
func (t Template) explain(err error) error {
	if strings.HasPrefix(err.Error(), t.name()) {
		return err
	}
	return fmt.Errorf("%s: %w", t.name(), err)
}

// plan checks where the result goes.
func (t Template) plan() (file, error) {
	path, err := taskdir.Local(t.DestPath)
	if err != nil {
		return file{}, fmt.Errorf("destPath %w", err)
	}
	if path == "." || strings.HasSuffix(t.DestPath, "/") {
		return file{}, fmt.Errorf("destPath %.200q names no file", t.DestPath)
	}
	perms, err := strconv.ParseUint(cmp.Or(t.Perms, "0644"), 8, 32)
	if err != nil || perms > 0o777 {
		return file{}, fmt.Errorf("perms %.20q are not three octal digits, such as 0640", t.Perms)
	}
	return file{path: path, perms: fs.FileMode(perms)}, nil
}

// text is the template itself.
func (t Template) text(root *os.Root) (string, error) {
	if t.SourcePath == "" {
		return t.Embedded, nil
	}
	text, err := readFile(root, t.SourcePath)
	if err != nil {
		return "", fmt.Errorf("sourcePath %w", err)
	}
	return text, nil
}

// readFile reads a file below the task's directory.
func readFile(root *os.Root, name string) (string, error) {
	path, err := taskdir.Local(name)
	if err != nil {
		return "", err
	}
	// Without O_NONBLOCK a pipe that nobody writes to is waited for, for ever.
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("%.200q: %w", name, errors.Unwrap(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%.200q is not a file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxOutput+1))
	if err != nil {
		return "", err
	}
	if len(text) > MaxOutput {
		return "", fmt.Errorf("%.200q is larger than %d bytes", name, MaxOutput)
	}
	return string(text), nil
}

// file is a result on its way to its place.
type file struct {
	path    string
	perms   fs.FileMode
	content []byte
}

// write puts the file in its place, when it is not there already.
func (f file) write(root *os.Root) (changed bool, err error) {
	there, err := root.Lstat(f.path)
	switch {
	case err == nil && there.IsDir():
		return false, fmt.Errorf("%.200q is a directory", f.path)
	case err == nil && f.isThere(root, there):
		return false, root.Chmod(f.path, f.perms)
	}
	undo, err := taskdir.MakeParents(root, f.path)
	if err != nil {
		return false, err
	}
	if err := f.replace(root); err != nil {
		undo()
		return false, err
	}
	return true, nil
}

func (f file) isThere(root *os.Root, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() || info.Size() != int64(len(f.content)) {
		return false
	}
	old, err := root.ReadFile(f.path)
	return err == nil && bytes.Equal(old, f.content)
}

// replace writes a new file and gives it the name of the old one. It has its
// perms before it has the name, so that no one reads early what is not theirs.
func (f file) replace(root *os.Root) error {
	hidden := filepath.Join(filepath.Dir(f.path), ".k8s4r-template-"+rand.Text())
	temp, err := root.OpenFile(hidden, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = temp.Write(f.content)
	err = errors.Join(err, temp.Chmod(f.perms), temp.Close())
	if err == nil {
		err = root.Rename(hidden, f.path)
	}
	if err != nil {
		_ = root.Remove(hidden)
	}
	return err
}
