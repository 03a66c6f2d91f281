package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/drivertest"
)

func command(c string, args ...string) wire.TaskConfig {
	return wire.TaskConfig{Exec: &wire.ExecConfig{Command: c, Args: args}}
}

func file(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExec_PassesDriverSuite(t *testing.T) {
	for _, name := range []string{"exec", "raw_exec"} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Suite{
				Driver: name,
				Shell:  func(script string) wire.TaskConfig { return command("sh", "-c", script) },
				Broken: map[string]wire.TaskConfig{
					"execConfig is missing": {},
					"command is empty":      command(""),
				},
				Unstartable: map[string]wire.TaskConfig{
					`command "no-such-thing" not found on PATH /usr/local/bin:/usr/bin:/bin`: command("no-such-thing"),
					`command "/no/such/file" not found`:                                      command("/no/such/file"),
					`command "./relative" not found`:                                         command("./relative"),
					`command "/tmp" is a directory`:                                          command("/tmp"),
					`is not executable`:                                                      command(file(t, "plain", "#!/bin/sh\n", 0o600)),
					`nor a script with a #! line`:                                            command(file(t, "text", "echo hello\n", 0o700)),
					`names an interpreter that does not exist`:                               command(file(t, "script", "#!/no/such/sh\n", 0o700)),
					`an argument contains a NUL byte`:                                        command("echo", "a\x00b"),
					`are too long together`:                                                  command("echo", strings.Repeat("a", 1<<18)),
				},
			})
		})
	}
}

func TestMain(m *testing.M) { drivertest.Main(m) }

func TestExec_StartRejectsInvalidEnvironment(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{name: "a name with = in it", env: map[string]string{"A=B": "c"}, want: `env "A=B" is not a valid name`},
		{name: "an empty name", env: map[string]string{"": "c"}, want: `env "" is not a valid name`},
		{name: "a value with a NUL byte", env: map[string]string{"A": "b\x00c"}, want: "env A contains a NUL byte"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.env["PATH"] = driver.DefaultPath
			_, err := driver.Exec{}.Start(driver.Task{Config: command("true"), Dir: t.TempDir(), Env: test.env, Stdout: os.Stdout, Stderr: os.Stderr})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Start = %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestExec_LooksUpCommandOnTaskPath(t *testing.T) {
	tool := file(t, "tool", "#!/bin/sh\necho from the task > out\n", 0o700)
	dir := t.TempDir()
	p, err := driver.Exec{}.Start(driver.Task{
		Config: command("tool"), Dir: dir, Env: map[string]string{"PATH": "relative::" + filepath.Dir(tool)}, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(p.Done()), Events: unix.POLLIN}}, 20_000); err != nil {
		t.Fatal(err)
	}
	if end := p.End(); end.Code != 0 {
		t.Errorf("ended as %+v", end)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "out")); string(b) != "from the task\n" {
		t.Errorf("output = %q", b)
	}
}
