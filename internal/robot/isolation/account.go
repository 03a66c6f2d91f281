package isolation

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The lists of the robot's accounts. Package os/user would read them too, but adds half a megabyte to each
// agent.
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// UserName returns the name of the account with this uid. It is empty if the robot has none.
func UserName(uid uint32) string {
	name, _, err := findAccount(passwdFile, func(_, id string) bool { return id == strconv.FormatUint(uint64(uid), 10) })
	if err != nil {
		return "" // as without an account: the number identifies the user
	}
	return name
}

// FindGroup returns the id of the group with this name. It is nil if the robot has no such group.
func FindGroup(name string) (*uint32, error) { return findGroup(groupFile, name) }

func findGroup(file, name string) (*uint32, error) {
	if name == "" {
		return nil, nil
	}
	found, id, err := findAccount(file, func(of, _ string) bool { return of == name })
	if err != nil || found == "" {
		return nil, err
	}
	gid, err := parseID(id)
	if err != nil {
		return nil, fmt.Errorf("group %s has the id %q in %s, which is no number below 2^32", name, id, file)
	}
	return &gid, nil
}

// findAccount returns the first account in a list, of lines such as NAME:PASSWORD:ID:…, that matches. The
// name is empty if none does.
func findAccount(file string, matches func(name, id string) bool) (name, id string, err error) {
	list, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(list)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 4)
		if len(fields) == 4 && !strings.HasPrefix(fields[0], "#") && matches(fields[0], fields[2]) {
			return fields[0], fields[2], nil
		}
	}
	return "", "", nil
}
