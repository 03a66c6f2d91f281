package docker

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// containerUser is the user of a container.
type containerUser struct {
	uid int
	// group is a name or number in the image. If empty, it is the user's group there.
	group string
}

// String returns the user as the engine reads it. The uid is a number: the engine must not look up
// a name again, which it could read differently in a malformed /etc/passwd.
func (u containerUser) String() string {
	if u.group == "" {
		return strconv.Itoa(u.uid)
	}
	return strconv.Itoa(u.uid) + ":" + u.group
}

// chooseContainerUser returns the user that the task names, else that of its image unless it is
// root, else the robot's user for tasks. A task is root only if its definition names root.
func chooseContainerUser(ctx context.Context, engine *client.Client, t driver.Task, ofImage string) (containerUser, error) {
	own := t.Contained.User
	u, err := lookupContainerUser(ctx, engine, t, cmp.Or(own, ofImage))
	switch {
	case err != nil:
		return u, fmt.Errorf("user: %w", err)
	case u.uid != 0 || isolation.IsRootName(own):
		return u, nil
	case own != "":
		return u, fmt.Errorf("user: %q is root in the image: name another user, or set user to root, which is a privilege", own)
	case t.Contained.TaskUser == "":
		return u, errors.New("user: the user of the image is root, and the robot has no other for it: name one of the image")
	}
	return lookupContainerUser(ctx, engine, t, t.Contained.TaskUser)
}

// lookupContainerUser returns the user of the form NAME, UID, NAME:GROUP or UID:GROUP. The engine
// takes an empty name as root.
func lookupContainerUser(ctx context.Context, engine *client.Client, t driver.Task, user string) (u containerUser, err error) {
	var name string
	name, u.group, _ = strings.Cut(user, ":")
	if name == "" || name == "root" {
		return u, nil
	}
	if u.uid, err = strconv.Atoi(name); err != nil {
		u.uid, err = lookupInImage(ctx, engine, t, name)
	}
	if err == nil && (u.uid < 0 || u.uid > math.MaxInt32) { // the engine may keep only 32 bits, which can be 0
		err = fmt.Errorf("%q has the uid %d, which is not between 0 and %d", name, u.uid, math.MaxInt32)
	}
	return u, err
}

// lookupInImage looks up a user in the image. The engine shows files only of containers, so it
// creates one for that, which is never started.
func lookupInImage(ctx context.Context, engine *client.Client, t driver.Task, name string) (uid int, err error) {
	created, err := engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: t.Config.Docker.Image, Entrypoint: []string{"none"}, Labels: containerLabels(t.Contained.Attempt)},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, removeContainer(ctx, engine, created.ID)) }()
	file, err := engine.CopyFromContainer(ctx, created.ID, client.CopyFromContainerOptions{SourcePath: "/etc/passwd"})
	if errdefs.IsNotFound(err) {
		return 0, fmt.Errorf("the image has no user %q: it has no /etc/passwd", name)
	}
	if err != nil {
		return 0, err
	}
	defer file.Content.Close()
	list := tar.NewReader(file.Content)
	if _, err := list.Next(); err != nil {
		return 0, fmt.Errorf("read the users of the image: %w", err)
	}
	return findUID(list, name)
}

// maxPasswd bounds how much of /etc/passwd is read, in bytes.
const maxPasswd = 1 << 20

// findUID looks up a user in a file in the format of /etc/passwd.
func findUID(passwd io.Reader, name string) (int, error) {
	lines := bufio.NewScanner(io.LimitReader(passwd, maxPasswd))
	for lines.Scan() {
		field := strings.Split(lines.Text(), ":")
		if len(field) < 3 || field[0] != name {
			continue
		}
		uid, err := strconv.Atoi(field[2])
		if err != nil {
			return 0, fmt.Errorf("the uid of %q in the image: %w", name, err)
		}
		return uid, nil
	}
	return 0, errors.Join(fmt.Errorf("the image has no user %q", name), lines.Err())
}

// chownTaskDir makes the user of the container the owner of the task's directory.
func chownTaskDir(dir string, uid int) error {
	if uid == 0 {
		uid = os.Geteuid() // the set-up may have run as another user
	}
	err := os.Chown(dir, uid, -1)
	if errors.Is(err, os.ErrPermission) { // an agent that is not root can only open the directory to all users
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		return fmt.Errorf("change the owner of the task's directory: %w", err)
	}
	return nil
}
