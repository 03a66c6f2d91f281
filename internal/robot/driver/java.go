package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Java runs a jar with the java of the robot, like Exec runs a command.
type Java struct{ exec Exec }

// Check returns an error unless the config has a javaConfig with a jar.
func (Java) Check(c wire.TaskConfig) error {
	if c.Java == nil {
		return errors.New("config.javaConfig is missing")
	}
	return c.Java.Check()
}

// Offered reports whether the robot has java.
func (Java) Offered() bool {
	_, err := findExecutable("java", "/", DefaultPath)
	return err == nil
}

// Start runs the jar, or a class in it. The jar is relative to the task's directory, and java is
// looked up on the task's PATH.
func (d Java) Start(t Task) (Running, error) {
	c := t.Config.Java
	if err := checkJar(c.JarPath, t.Dir); err != nil {
		return nil, err
	}
	t.Config = wire.TaskConfig{Exec: &wire.ExecConfig{Command: "java", Args: javaArgs(c)}}
	return d.exec.Start(t)
}

// javaArgs returns the arguments of java.
func javaArgs(c *wire.JavaConfig) []string {
	if c.Class == "" {
		return slices.Concat(c.JVMOptions, []string{"-jar", c.JarPath}, c.Args)
	}
	path := c.JarPath
	if c.Classpath != "" {
		path += string(filepath.ListSeparator) + c.Classpath
	}
	return slices.Concat(c.JVMOptions, []string{"-cp", path, c.Class}, c.Args)
}

// checkJar returns an error if the jar does not exist. It is clearer than that of java.
func checkJar(jar, dir string) error {
	file := jar
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	switch info, err := os.Stat(file); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("jar %q not found", jar)
	case err != nil:
		return fmt.Errorf("jar %q: %w", jar, err)
	case info.IsDir():
		return fmt.Errorf("jar %q is a directory", jar)
	}
	return nil
}
