package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestAdmission_PrivilegesAreGrantedByName has tenants who may use some privileges: no other
// privilege, user or driver comes with them.
func TestAdmission_PrivilegesAreGrantedByName(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "granted")
	grants := map[string][]string{
		"nothing": nil, "pilot": {"user:pilot"}, "root": {"root"}, "root-container": {"root-container"},
		"networks": {"host-network", "container-network"}, "crew": {"user:a", "user:b", "user:c", "user:d", "user:e"},
	}
	for user, privileges := range grants {
		s.bind("edits-"+user, user, "k8s4r-edit")
		s.allow(user, "taskgroups", "create")
		for _, p := range privileges {
			s.allow(user, "privileges/"+p, "use")
		}
	}
	awaitPolicies(t, s)
	exec := func(user string) string {
		return fmt.Sprintf(`{name: t, driver: exec, user: %q, config: {execConfig: {command: x}}}`, user)
	}
	docker := func(user, network string) string {
		return fmt.Sprintf(`{name: t, driver: docker, user: %q, config: {dockerConfig: {image: x, networkMode: %q}}}`, user, network)
	}
	one := []struct{ name, as, tasks, want string }{
		{"a user of an image", "nothing", docker("pilot", "bridge"), ""},
		{"an ordinary network", "nothing", docker("", "hostile"), ""},
		{"the granted user", "pilot", exec("pilot"), ""},
		{"another user", "pilot", exec("copilot"), `"user:copilot"`},
		{"another name of a user", "pilot", exec("1000"), `"user:1000"`},
		{"a user that is root", "pilot", exec("root"), `"root"`},
		{"a user and a group", "pilot", exec("pilot:wheel"), `"user:pilot`},
		{"root", "root", exec("0"), ""},
		{"root in a container is another privilege", "root", docker("0", ""), `"root-container"`},
		{"root does not mean all users", "root", exec("pilot"), `"user:pilot"`},
		{"root in a container", "root-container", docker("0:0", ""), ""},
		{"root of the robot is another privilege", "root-container", exec("0:0"), `"root"`},
		{"root and a line", "nothing", docker("root:\n", ""), `"root-container"`},
		{"the network of the robot", "networks", docker("", "host"), ""},
		{"the network of a container", "networks", docker("", "container:x"), ""},
	}
	several := func(users ...string) string {
		var tasks []string
		for i, user := range users {
			tasks = append(tasks, fmt.Sprintf(`{name: t%d, driver: exec, user: %q, config: {execConfig: {command: x}}}`, i, user))
		}
		return strings.Join(tasks, ", ")
	}
	more := []struct{ name, as, tasks, want string }{
		{"two names in one", "pilot", exec("pilot\nother"), `"user:other"`},
		{"four of them", "crew", several("a", "b", "a", "c", "d", "d"), ""},
		{"one that is not granted", "crew", several("a", "b", "c", "z"), `"user:z"`},
		{"two that are not granted", "crew", several("y", "a", "z"), `"user:y"`},
		{"more than four", "crew", several("a", "b", "c", "d", "e"), "more than 4 users"},
	}
	testkit.EventuallyNoError(t, waitTimeout, "the rights are in force", func() (err error) {
		for _, test := range slices.Concat(one, more) {
			if test.want == "" {
				err = errors.Join(err, s.submit(s.as(test.as), carriers["Job"](test.tasks)), s.submit(s.as(test.as), carriers["TaskGroup by hand"](test.tasks)))
			}
		}
		return err
	})
	for kind, manifest := range carriers {
		t.Run(kind, func(t *testing.T) {
			for _, test := range one {
				if err := verdictError(s.submit(s.as(test.as), manifest(test.tasks)), test.want); err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
			}
			if strings.HasPrefix(kind, "Task ") { // has only one user
				return
			}
			for _, test := range more {
				if err := verdictError(s.submit(s.as(test.as), manifest(test.tasks)), test.want); err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
			}
		})
	}
}

// verdictError returns an error unless a submission was refused with the wanted text, or accepted
// if that is empty.
func verdictError(err error, want string) error {
	switch {
	case want == "" && err != nil:
		return err
	case want != "" && err == nil:
		return fmt.Errorf("it is accepted, want %q", want)
	case want != "" && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "in namespace granted")):
		return fmt.Errorf("%w, want %q", err, want)
	}
	return nil
}
