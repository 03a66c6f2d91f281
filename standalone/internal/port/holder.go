package port

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tcpListen is the state of a listening socket in /proc/net/tcp.
const tcpListen = "0A"

type holder struct {
	pid     int
	command string
}

// findHolder searches proc for the process that listens on the port. Without root it cannot see the
// sockets of other users' processes and returns false.
func findHolder(proc string, port uint16) (holder, bool) {
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		findListeners(filepath.Join(proc, "net", table), port, inodes)
	}
	fds, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && inodes[target] {
			return describeProcess(filepath.Dir(filepath.Dir(fd)))
		}
	}
	return holder{}, false
}

// findListeners adds the sockets that listen on port, in the notation of /proc/*/fd.
func findListeners(table string, port uint16, found map[string]bool) {
	f, err := os.Open(table)
	if err != nil {
		return
	}
	defer f.Close()
	suffix := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[3] == tcpListen && strings.HasSuffix(fields[1], suffix) {
			found["socket:["+fields[9]+"]"] = true
		}
	}
}

func describeProcess(dir string) (holder, bool) {
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return holder{}, false
	}
	line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	command := string(bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	if len(command) > 80 {
		command = command[:80] + "…"
	}
	return holder{pid: pid, command: command}, true
}
