// Package template renders the files of a task from templates, and expands references in its
// command and environment.
//
// A template is part of the job and may be malicious: it may not terminate, write without end, or
// name files that it must not read. Rendering is bounded in time and output, and has access only
// to its Data and the task's directory.
package template

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

	"k8s4r.io/k8s4r/internal/robot/hostfs"
)

const (
	// MaxOutput is the size limit of the output of a template, in bytes. It also applies to the
	// template itself, each file that it reads, and each text within it.
	MaxOutput = 1 << 20
	// MaxTime is the time limit of one template.
	MaxTime = 10 * time.Second
)

// Template is one file of a task.
type Template struct {
	// Index of the template in the task's list, for errors.
	Index int
	// SourcePath is the template's path below the task's directory. If empty, Embedded is used.
	SourcePath string
	// Embedded is the text of the template.
	Embedded string
	// DestPath is the path of the result below the task's directory.
	DestPath string
	// Perms are the permissions of the result in octal. If empty, 0644.
	Perms string
	// LeftDelim and RightDelim replace {{ and }}. If empty, those are used.
	LeftDelim, RightDelim string
}

// Data is all data that a template can access. It is also the dot of the template, so {{
// .Task.Name }} is the task's name.
type Data struct {
	// Env is the environment of the task.
	Env map[string]string
	// Meta is the meta of the job and its task group.
	Meta map[string]string
	// Labels are those of the robot.
	Labels map[string]string
	// Attrs are the attributes of the robot, such as os and cpu.cores.
	Attrs map[string]string
	Task  Task
}

// Task describes the task that the template belongs to.
type Task struct {
	Name, UID, Job, Group, Index, Robot string
	// Attempt counts from 1.
	Attempt int32
}

// Render writes the result of a template into dir, the task's directory, and reports whether the
// content of the file changed. The new file replaces the old one atomically.
//
// The error is one sentence for the user. It starts with templates[i] and the template's line if
// known, and never contains a value of Data. After an error nothing has changed.
func Render(ctx context.Context, t Template, d Data, dir string) (changed bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, t.wrapError(fmt.Errorf("open the task's directory: %w", err))
	}
	defer root.Close()
	f, err := t.planFile()
	if err != nil {
		return false, t.wrapError(err)
	}
	text, err := t.readText(root)
	if err != nil {
		return false, t.wrapError(err)
	}
	late := fmt.Errorf("took longer than %v", MaxTime)
	ctx, cancel := context.WithTimeoutCause(ctx, MaxTime, late)
	defer cancel()
	f.content, err = t.executeText(ctx, text, d, root)
	if err != nil {
		return false, t.wrapError(err)
	}
	if changed, err = f.writeIfChanged(root); err != nil {
		return false, t.wrapError(fmt.Errorf("destPath: %w", err))
	}
	return changed, nil
}

// Check returns the error that Render would return for a template that can never be rendered: of its
// paths, its permissions and the syntax of an embedded text. It needs no directory.
func (t Template) Check() error {
	if _, err := t.planFile(); err != nil {
		return t.wrapError(err)
	}
	if _, err := hostfs.CleanLocal(t.SourcePath); err != nil {
		return t.wrapError(fmt.Errorf("sourcePath %w", err))
	}
	if _, err := t.parseText(t.Embedded, Data{}, nil); err != nil {
		return t.wrapError(err)
	}
	return nil
}

func (t Template) displayName() string { return fmt.Sprintf("templates[%d]", t.Index) }

// wrapError adds the template's name to an error. Errors of the template language already have it,
// with the line.
func (t Template) wrapError(err error) error {
	if strings.HasPrefix(err.Error(), t.displayName()) {
		return err
	}
	return fmt.Errorf("%s: %w", t.displayName(), err)
}

// planFile checks the destination and the permissions of the result.
func (t Template) planFile() (file, error) {
	path, err := hostfs.CleanLocal(t.DestPath)
	if err != nil {
		return file{}, fmt.Errorf("destPath %w", err)
	}
	if path == "." || strings.HasSuffix(t.DestPath, "/") {
		return file{}, fmt.Errorf("destPath %.200q is not the path of a file", t.DestPath)
	}
	perms, err := strconv.ParseUint(cmp.Or(t.Perms, "0644"), 8, 32)
	if err != nil || perms > 0o777 {
		return file{}, fmt.Errorf("perms %.20q must be octal permissions up to 0777, such as 0640", t.Perms)
	}
	return file{path: path, perms: fs.FileMode(perms)}, nil
}

// readText returns the text of the template.
func (t Template) readText(root *os.Root) (string, error) {
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
	path, err := hostfs.CleanLocal(name)
	if err != nil {
		return "", err
	}
	// Without O_NONBLOCK, opening a pipe without a writer would block forever.
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

// file is a result that is to be written.
type file struct {
	path    string
	perms   fs.FileMode
	content []byte
}

// writeIfChanged writes the file unless it exists with the same content and permissions.
func (f file) writeIfChanged(root *os.Root) (changed bool, err error) {
	there, err := root.Lstat(f.path)
	switch {
	case err == nil && there.IsDir():
		return false, fmt.Errorf("%.200q is a directory", f.path)
	case err == nil && f.isThere(root, there):
		return false, root.Chmod(f.path, f.perms)
	}
	undo, err := hostfs.MakeParents(root, f.path)
	if err != nil {
		return false, err
	}
	if err := f.replaceAtomically(root); err != nil {
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

// replaceAtomically writes a new file and renames it to the path of the old one. The permissions
// are set before the rename, so that no other user can read the file early.
func (f file) replaceAtomically(root *os.Root) error {
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
