package drivers

import (
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/drivertest"
)

// quick are options with which a JVM starts in a tenth of a second.
var quick = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m"}

func java(c wire.JavaConfig) wire.TaskConfig {
	c.JVMOptions = append(c.JVMOptions, quick...)
	return wire.TaskConfig{Java: &c}
}

func shellJar(t *testing.T) string {
	jar, err := filepath.Abs("testdata/shell.jar")
	if err != nil {
		t.Fatal(err)
	}
	return jar
}

func TestJava(t *testing.T) {
	jar := shellJar(t)
	drivertest.Run(t, drivertest.Suite{
		Driver: "java",
		Shell: func(script string) wire.TaskConfig {
			return java(wire.JavaConfig{JarPath: jar, Args: []string{script}})
		},
		Broken: map[string]wire.TaskConfig{
			"javaConfig is missing": {},
			"jarPath is empty":      java(wire.JavaConfig{}),
			"class is required":     java(wire.JavaConfig{JarPath: jar, Classpath: "lib"}),
		},
		Unstartable: map[string]wire.TaskConfig{
			`jar "no-such.jar" not found`: java(wire.JavaConfig{JarPath: "no-such.jar"}),
			`jar "/tmp" is a directory`:   java(wire.JavaConfig{JarPath: "/tmp"}),
		},
	})
}

func TestJava_RunsAClassOfAJar(t *testing.T) {
	config := java(wire.JavaConfig{JarPath: shellJar(t), Class: "Shell", Classpath: "lib/*", Args: []string{`exit "$A"`}})
	if end := run(t, driver.Java{}, driver.Task{Config: config, Env: map[string]string{"A": "7"}}); end.Code != 7 {
		t.Errorf("ended as %+v, want 7", end)
	}
}

func TestJava_IsOfferedOnlyWhereInstalled(t *testing.T) {
	if !(driver.Java{}).Offered() {
		t.Error("java is installed, but not offered")
	}
}
