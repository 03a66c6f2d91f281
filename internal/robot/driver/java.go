package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s4r.io/k8s4r/internal/wire"
)

// Java runs a jar with the java of the robot, as Exec runs a command.
type Java struct{ exec Exec }

// Check wants javaConfig with a jar.
func (Java) Check(c wire.TaskConfig) error {
	switch j := c.Java; {
	case j == nil:
		return errors.New("config.javaConfig is missing")
	case j.JarPath == "":
		return errors.New("config.javaConfig.jarPath is empty")
	case j.Classpath != "" && j.Class == "":
		return errors.New("config.javaConfig.classpath needs a class: java takes none beside the main class of a jar")
	}
	return nil
}

// Offered where a java is found.
func (Java) Offered() bool {
	_, err := lookup("java", "/", DefaultPath)
	return err == nil
}

// Start runs the jar, or a class of it. The jar is relative to the task's
// directory, and java is looked up on the PATH of the task.
func (d Java) Start(t Task) (Running, error) {
	c := t.Config.Java
	if err := isJar(c.JarPath, t.Dir); err != nil {
		return nil, err
	}
	t.Config = wire.TaskConfig{Exec: &wire.ExecConfig{Command: "java", Args: javaArgs(c)}}
	return d.exec.Start(t)
}

// javaArgs is the command line behind java.
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

// isJar says of a jar that is not there more than java does.
func isJar(jar, dir string) error {
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
