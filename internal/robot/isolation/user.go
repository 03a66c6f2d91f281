package isolation

import (
	"cmp"
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

// User is the user that a task runs as.
type User struct {
	Name   string   `json:"name"`
	Home   string   `json:"home"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// LookupUser finds a user of this robot by name or number, with all its groups. It returns nil if
// nothing needs to change: for the empty name, and for the agent's own user if the agent is not
// root. The error is a sentence that names the field.
func LookupUser(name string) (*User, error) {
	return lookupUser(name, os.Geteuid())
}

// LookupTaskUser finds the user of a task that names one, or else fallback, as LookupUser does. An
// account with uid 0 must be named so that admission recognizes it (IsRootName): any other name of
// it would make root of a tenant who may not be root.
func LookupTaskUser(name, fallback string) (*User, error) {
	u, err := LookupUser(cmp.Or(name, fallback))
	if err == nil && name != "" && u != nil && u.UID == 0 && !IsRootName(name) {
		return nil, fmt.Errorf("user: %q is root on this robot: name another user, or set user to root, which is a privilege", name)
	}
	return u, err
}

// IsRootName reports whether a task's user, as NAME or NAME:GROUP, is a name of root that admission
// grants only to users with a privilege.
func IsRootName(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "root" || name == "0"
}

func lookupUser(name string, euid int) (*User, error) {
	if name == "" {
		return nil, nil
	}
	u, err := findUser(name)
	if _, none := errors.AsType[noUserError](err); none {
		return nil, fmt.Errorf("user: %w: add it there, or leave the field user empty", err)
	}
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	found, err := parseUser(u)
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

// defaultUsers are the users for tasks that name none, if the agent is root. The first one that
// exists is taken: the packages create one, and every system has the other.
var defaultUsers = []string{"k8s4r-task", "nobody"}

// DefaultUser returns the user for tasks that name none, unless the agent is configured with one.
// It is empty if the agent is not root: tasks then run as the agent's user.
func DefaultUser() (string, error) { return findDefaultUser(os.Geteuid(), defaultUsers) }

func findDefaultUser(euid int, among []string) (string, error) {
	if euid != 0 {
		return "", nil
	}
	// os/user is not used here, since it adds half a megabyte to agents whose tasks do not need
	// it.
	list, err := os.ReadFile("/etc/passwd")
	for _, name := range among {
		if err == nil && strings.Contains("\n"+string(list), "\n"+name+":") {
			return name, nil
		}
	}
	return "", fmt.Errorf("this robot has none of the users %v in /etc/passwd: configure another user, or root to run tasks as root", among)
}

// IsAgents reports whether a user is the agent's own. It returns an error if there is no such
// user, or if the agent cannot run tasks as that user.
func IsAgents(name string) (bool, error) { return isAgentUser(name, os.Geteuid()) }

func isAgentUser(name string, euid int) (bool, error) {
	u, err := findUser(name)
	if err != nil {
		return false, err
	}
	own := u.Uid == strconv.Itoa(euid)
	if !own && euid != 0 {
		return false, fmt.Errorf("%q cannot be used, since the agent is not root", name)
	}
	return own, nil
}

// FirstForbiddenDir returns the first directory on a path that the user cannot enter because of
// its mode. It is empty if there is none, or if u is nil.
func (u *User) FirstForbiddenDir(path string) string {
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
		if info, err := os.Stat(dir); err == nil && !u.canPass(info) {
			return dir
		}
	}
	return ""
}

func (u *User) canPass(dir os.FileInfo) bool {
	s, ok := dir.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return true // the kernel decides
	case s.Uid == u.UID:
		return s.Mode&0o100 != 0
	case s.Gid == u.GID || slices.Contains(u.Groups, s.Gid):
		return s.Mode&0o010 != 0
	}
	return s.Mode&0o001 != 0
}

func findUser(name string) (*user.User, error) {
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

// noUserError reports that a user does not exist.
type noUserError string

func (e noUserError) Error() string {
	return fmt.Sprintf("this robot has no %q in /etc/passwd", string(e))
}

func parseUser(u *user.User) (*User, error) {
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	found := &User{Name: u.Username, Home: u.HomeDir}
	if found.UID, err = parseID(u.Uid); err != nil {
		return nil, err
	}
	if found.GID, err = parseID(u.Gid); err != nil {
		return nil, err
	}
	for _, g := range groups {
		gid, err := parseID(g)
		if err != nil {
			return nil, err
		}
		found.Groups = append(found.Groups, gid)
	}
	return found, nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}
