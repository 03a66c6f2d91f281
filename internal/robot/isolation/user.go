package isolation

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// User is whom a task runs as.
type User struct {
	Name   string   `json:"name"`
	Home   string   `json:"home"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// LookupUser finds a user of this robot by name or number, with all groups. It
// is nil for the empty name and for the agent's own user when that is not
// root: nothing changes then. The error is a sentence that names the field.
func LookupUser(name string) (*User, error) {
	return lookupUser(name, os.Geteuid())
}

func lookupUser(name string, euid int) (*User, error) {
	if name == "" {
		return nil, nil
	}
	u, err := find(name)
	if _, none := errors.AsType[noUserError](err); none {
		return nil, fmt.Errorf("user: %w: add it there, or leave the field user empty", err)
	}
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	found, err := numbers(u)
	switch {
	case err != nil:
		return nil, fmt.Errorf("user: %q: %w", name, err)
	case euid == 0:
		return found, nil
	case int(found.UID) == euid:
		return nil, nil
	}
	return nil, fmt.Errorf("user: %q cannot be used, since the agent of this robot is not root: "+
		"leave the field user empty, or run the agent as root", name)
}

// The users that tasks run as which name none, where the agent is root: the first
// that there is. Packages make the one, every system has the other.
var defaultUsers = []string{"k8s4r-task", "nobody"}

// DefaultUser names who tasks run as that name no user, and who an agent was given
// no other for. It is empty for an agent that is not root: they run as itself.
func DefaultUser() (string, error) { return defaultUser(os.Geteuid(), defaultUsers) }

func defaultUser(euid int, among []string) (string, error) {
	if euid != 0 {
		return "", nil
	}
	// Not by os/user, which the first task needs: it took an agent that has none half
	// a megabyte.
	list, err := os.ReadFile("/etc/passwd")
	for _, name := range among {
		if err == nil && strings.Contains("\n"+string(list), "\n"+name+":") {
			return name, nil
		}
	}
	return "", fmt.Errorf("this robot has none of the users %v in /etc/passwd: name another one, or root if tasks are to be root", among)
}

// IsAgents tells whether a user is who the agent is. The error tells that there is
// no such user, or that the agent cannot run tasks as it.
func IsAgents(name string) (bool, error) { return isAgents(name, os.Geteuid()) }

func isAgents(name string, euid int) (bool, error) {
	u, err := find(name)
	if err != nil {
		return false, err
	}
	own := u.Uid == strconv.Itoa(euid)
	if !own && euid != 0 {
		return false, fmt.Errorf("%q cannot be used, since the agent is not root", name)
	}
	return own, nil
}

// Shut is the first directory on the way to a path that the user cannot pass, by its
// mode. Empty: none, as for nil.
func (u *User) Shut(path string) string {
	if u == nil || u.UID == 0 {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	var way []string
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		way = append(way, dir)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, dir := range slices.Backward(way) {
		if info, err := os.Stat(dir); err == nil && !u.passes(info) {
			return dir
		}
	}
	return ""
}

func (u *User) passes(dir os.FileInfo) bool {
	s, ok := dir.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return true // the kernel will say
	case s.Uid == u.UID:
		return s.Mode&0o100 != 0
	case s.Gid == u.GID || slices.Contains(u.Groups, s.Gid):
		return s.Mode&0o010 != 0
	}
	return s.Mode&0o001 != 0
}

func find(name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if _, numeric := strconv.Atoi(name); err != nil && numeric == nil {
		u, err = user.LookupId(name)
	}
	var unknownName user.UnknownUserError
	var unknownID user.UnknownUserIdError
	switch {
	case errors.As(err, &unknownName) || errors.As(err, &unknownID):
		return nil, noUserError(name)
	case err != nil:
		return nil, fmt.Errorf("look up %q: %w", name, err)
	}
	return u, nil
}

// noUserError names a user that is not there.
type noUserError string

func (e noUserError) Error() string {
	return fmt.Sprintf("this robot has no %q in /etc/passwd", string(e))
}

func numbers(u *user.User) (*User, error) {
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	found := &User{Name: u.Username, Home: u.HomeDir}
	if found.UID, err = number32(u.Uid); err != nil {
		return nil, err
	}
	if found.GID, err = number32(u.Gid); err != nil {
		return nil, err
	}
	for _, g := range groups {
		gid, err := number32(g)
		if err != nil {
			return nil, err
		}
		found.Groups = append(found.Groups, gid)
	}
	return found, nil
}

func number32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}
