package driver

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// chownTaskDir makes the user of the container the owner of the task's directory. The user is
// looked up in the container, since the robot may have another user of that name.
func chownTaskDir(ctx context.Context, engine *client.Client, id, dir string) error {
	c, err := engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil || c.Container.Config == nil {
		return err
	}
	name, _, _ := strings.Cut(c.Container.Config.User, ":")
	if name == "" || name == "0" || name == "root" {
		return os.Chown(dir, os.Geteuid(), -1) // the set-up may have run as another user
	}
	uid, err := strconv.Atoi(name)
	if err != nil {
		if uid, err = uidInContainer(ctx, engine, id, name); err != nil {
			return err
		}
	}
	err = os.Chown(dir, uid, -1)
	if errors.Is(err, os.ErrPermission) { // an agent that is not root can only open the directory to all users
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		return fmt.Errorf("change the owner of the task's directory: %w", err)
	}
	return nil
}

// uidInContainer looks up a user in /etc/passwd of the container.
func uidInContainer(ctx context.Context, engine *client.Client, id, name string) (int, error) {
	file, err := engine.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: "/etc/passwd"})
	if errdefs.IsNotFound(err) {
		return 0, fmt.Errorf("user: the image has no user %q: it has no /etc/passwd", name)
	}
	if err != nil {
		return 0, err
	}
	defer file.Content.Close()
	list := tar.NewReader(file.Content)
	if _, err := list.Next(); err != nil {
		return 0, fmt.Errorf("read the users of the image: %w", err)
	}
	return uidOf(list, name)
}

// maxPasswd bounds how much of /etc/passwd is read, in bytes.
const maxPasswd = 1 << 20

// uidOf looks up a user in a file in the format of /etc/passwd.
func uidOf(passwd io.Reader, name string) (int, error) {
	lines := bufio.NewScanner(io.LimitReader(passwd, maxPasswd))
	for lines.Scan() {
		field := strings.Split(lines.Text(), ":")
		if len(field) > 2 && field[0] == name {
			return strconv.Atoi(field[2])
		}
	}
	return 0, errors.Join(fmt.Errorf("user: the image has no user %q", name), lines.Err())
}
