package drivers

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	dockerdriver "k8s4r.io/k8s4r/internal/robot/driver/docker"
)

// isRootOnlyByName starts tasks that name some user, from images that name some user, on a robot
// whose tasks run as 1000:2000.
func isRootOnlyByName(t *testing.T, e *engine) {
	imported := map[string]bool{image: true}
	toName := strings.NewReplacer(":", "-of-", "+", "plus") // names of containers and images have no such characters
	for _, test := range []struct {
		image, user string
		want        string // what it prints, or a part of the error
	}{
		{"", "", "1000 2000\n"},
		{"0", "", "1000 2000\n"},
		{"root", "", "1000 2000\n"},
		{"0:1234", "", "1000 2000\n"},
		{":1234", "", "1000 2000\n"},
		{"toor", "", "1000 2000\n"},
		{"pilot", "", "1234 4321\n"},
		{"555", "", "555 0\n"},
		{"555:666", "", "555 666\n"},
		{"short", "", "1234 4321\n"},
		{"padded", "", "1234 4321\n"},
		{"wide", "", `"wide" has the uid 4294967296`},
		{"word", "", `the uid of "word" in the image`},
		{"pilot", "root", "0 0\n"},
		{"pilot", "0", "0 0\n"},
		{"pilot", "0:555", "0 555\n"},
		{"", "nobody", "65534 65534\n"},
		{"", "nobody" + ":555", "65534 555\n"},
		{"pilot", "toor", `"toor" is root in the image`},
		{"pilot", "toor:" + "nobody", `is root in the image`},
		{"pilot", ":1234", `is root in the image`},
		{"pilot", "00", `is root in the image`},
		{"pilot", "+0", `is root in the image`},
		{"pilot", "-0", `is root in the image`},
		{"pilot", "-1", `"-1" has the uid -1`},
		{"pilot", "4294967296", `has the uid 4294967296`},
		{"pilot", "no-such-user", `the image has no user "no-such-user"`},
	} {
		name := image
		if test.image != "" {
			name = "k8s4r/user-" + toName.Replace(test.image) + ":1"
		}
		if !imported[name] {
			e.importImage(name, "USER "+test.image)
			imported[name] = true
		}
		t.Run(toName.Replace("image "+test.image+" and task "+test.user), func(t *testing.T) {
			of := *e
			of.t = t
			c := docker(wire.DockerConfig{Image: name, Command: "sh", Args: []string{"-c", "echo $(id -u 2>/dev/null) $(id -g 2>/dev/null); touch $HOME/mine"}})
			task := driver.Task{Config: c, Contained: driver.Contained{User: test.user, TaskUser: "1000:2000"}, Dir: t.TempDir()}
			task.Env = map[string]string{"HOME": task.Dir}
			if strings.HasSuffix(test.want, "\n") {
				of.requireOutput(task, test.want)
			} else if err := of.requireStartError(task); !strings.Contains(err.Error(), "user: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Start = %v, want %q in it", err, test.want)
			}
			if left := of.containers(); len(left) > 0 {
				t.Errorf("containers %q are left", left)
			}
		})
	}
	t.Run("an image of root where the robot has no other user", func(t *testing.T) {
		task := driver.Task{Config: script("true")}
		fill(t, &task)
		task.Contained.TaskUser = ""
		if _, err := (&dockerdriver.Driver{Socket: e.socket}).Start(task); err == nil || !strings.Contains(err.Error(), "the user of the image is root") {
			t.Errorf("Start = %v", err)
		}
	})
}

// dropsRights checks even a task of root.
func dropsRights(t *testing.T, e *engine) {
	task := driver.Task{Contained: driver.Contained{User: "root"}, Config: script(strings.Join([]string{
		"grep -E 'CapBnd|CapEff|NoNewPrivs' /proc/self/status | tr -d '\\t'",
		"mknod $HOME/disk b 8 0 2>/dev/null || echo no device",
		"chroot / true 2>/dev/null || echo no chroot",
	}, "\n"))}
	task.Dir = t.TempDir()
	task.Env = map[string]string{"HOME": task.Dir}
	// Left are CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP and
	// NET_BIND_SERVICE.
	e.requireOutput(task, "CapEff:00000000000005fb\nCapBnd:00000000000005fb\nNoNewPrivs:1\nno device\nno chroot\n")
}
