package isolation

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
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
	if err != nil {
		return nil, err
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

func find(name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if _, numeric := strconv.Atoi(name); err != nil && numeric == nil {
		u, err = user.LookupId(name)
	}
	var unknownName user.UnknownUserError
	var unknownID user.UnknownUserIdError
	switch {
	case errors.As(err, &unknownName) || errors.As(err, &unknownID):
		return nil, fmt.Errorf("user: this robot has no %q in /etc/passwd: add it there, or leave the field user empty", name)
	case err != nil:
		return nil, fmt.Errorf("user: look up %q: %w", name, err)
	}
	return u, nil
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
