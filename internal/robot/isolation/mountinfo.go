package isolation

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// mountInfo is a line of a mountinfo file (proc_pid_mountinfo(5)).
type mountInfo struct {
	Device     string // major:minor
	Root       string // the part of the file system that is mounted
	Mountpoint string
	FSType     string
	VFSOptions string // of the file system, not of this mount
}

// Files with mounts. That of the process is not read from /proc/thread-self. With that, the process
// that reaps this one would spin until the kernel has released the state of its last thread, which
// took half of the time of a start.
const (
	processMounts = "/proc/self/mountinfo"        // that this process was started with
	threadMounts  = "/proc/thread-self/mountinfo" // that the calling thread sees
)

// readMounts returns the mounts in a file.
func readMounts(path string) (mounts []mountInfo, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		m, err := parseMount(strings.TrimSuffix(string(line), "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// parseMount parses a line: six fields, optional fields, a separator and three fields.
func parseMount(line string) (m mountInfo, err error) {
	mount, fileSystem, ok := strings.Cut(line, " - ")
	own, of := strings.Fields(mount), strings.SplitN(fileSystem, " ", 3)
	if !ok || len(own) < 6 || len(of) < 3 {
		return m, fmt.Errorf("line %.200q is not a mount", line)
	}
	return mountInfo{
		Device: own[2], Root: unescapePath(own[3]), Mountpoint: unescapePath(own[4]), FSType: of[0], VFSOptions: of[2],
	}, nil
}

// unescapePath replaces the octal codes of spaces, tabs, newlines and backslashes.
func unescapePath(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
