package port

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ClientUser returns the user id of the process at the other end of a connection over 127.0.0.1. It
// returns false if that cannot be found, as for a client that has closed its end.
func ClientUser(conn net.Conn) (uid int, ok bool) {
	client, isTCP := conn.RemoteAddr().(*net.TCPAddr)
	server, _ := conn.LocalAddr().(*net.TCPAddr)
	if !isTCP || server == nil || client.IP.To4() == nil || server.IP.To4() == nil {
		return 0, false
	}
	return findClientUser("/proc", client, server)
}

// findClientUser searches proc for the client's socket.
func findClientUser(proc string, client, server *net.TCPAddr) (uid int, ok bool) {
	f, err := os.Open(filepath.Join(proc, "net", "tcp"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 7 && fields[1] == tableAddress(client) && fields[2] == tableAddress(server) {
			uid, err := strconv.Atoi(fields[7])
			return uid, err == nil
		}
	}
	return 0, false
}

// tableAddress returns an IPv4 address as in /proc/net/tcp on a little-endian machine.
func tableAddress(a *net.TCPAddr) string {
	ip := a.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
}
