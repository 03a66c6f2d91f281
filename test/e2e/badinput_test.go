package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

const goodGroups = `[{name: a, tasks: [{name: t, driver: exec, config: {execConfig: {command: "true"}}}]}]`

// manifest returns a Job with these task groups and, before them, these lines.
func manifest(name, groups string, lines ...string) string {
	spec := ""
	for _, line := range lines {
		spec += "  " + line + "\n"
	}
	return "apiVersion: robot.k8s4r.io/v1alpha1\nkind: Job\nmetadata: {name: " + name + "}\nspec:\n" + spec + "  taskGroups: " + groups + "\n"
}

// template returns the same manifest as a JobTemplate.
func template(manifest string) string {
	return strings.Replace(manifest, "kind: Job\n", "kind: JobTemplate\n", 1)
}

// taskManifest returns a standalone Task with these fields beside its program.
func taskManifest(fields string) string {
	return "apiVersion: robot.k8s4r.io/v1alpha1\nkind: Task\nmetadata: {name: bad}\nspec: {name: t, driver: exec, config: {execConfig: {command: x}}, " + fields + "}\n"
}

func robotManifest(name, spec string) string {
	return "apiVersion: robot.k8s4r.io/v1alpha1\nkind: Robot\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

func TestAdmission_ExplainsWhatItRefuses(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "server,broker,robots,node,console")
	one := func(task string) string { return `[{name: a, tasks: [` + task + `]}]` }
	for _, row := range []struct{ name, manifest, want string }{
		{"an unknown field",
			manifest("bad", `[{name: a, replicas: 3, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`unknown field "spec.taskGroups\[0\].replicas"`},
		{"no task groups", manifest("bad", `[]`), `spec.taskGroups.*at least 1`},
		{"a group without tasks", manifest("bad", `[{name: a, tasks: []}]`), `spec.taskGroups\[0\].tasks.*at least 1`},
		{"count 0", manifest("bad", `[{name: a, count: 0, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`spec.taskGroups\[0\].count.*greater than or equal to 1`},
		{"an operand that does not exist",
			manifest("bad", `[{name: a, constraints: [{lTarget: a, operand: "~", rTarget: b}], tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`constraints\[0\].operand: Unsupported value: "~": supported values: "=", "!="`},
		{"a constraint with both spellings",
			manifest("bad", `[{name: a, constraints: [{lTarget: a, ltarget: a, operand: "="}], tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`set lTarget \(or ltarget, not both\)`},
		{"a constraint on an attribute that no robot has",
			manifest("bad", `[{name: a, constraints: [{lTarget: "${robot.attr.mood}", operand: "=", rTarget: good}], tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`constraints of a: \$\{robot.attr.mood\} is not a valid target; use a literal`},
		{"a pattern that does not compile",
			manifest("bad", `[{name: a, constraints: [{lTarget: "${robot.labels.a}", operand: regexp, rTarget: "("}], tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`spec.taskGroups\[a\].constraints\[0\]: [^\n]*rTarget is not a pattern of RE2: missing closing \)`},
		{"an unreadable range of versions",
			manifest("bad", `[{name: a, constraints: [{lTarget: "${robot.labels.a}", operand: version, rTarget: new}], tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`constraints of a: "new" is not a version range; use comma-separated bounds`},
		{"a version that is none",
			manifest("bad", `[{name: a, constraints: [{lTarget: abc, operand: version, rTarget: ">= 1"}], tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`constraints of a: "abc" is not a version; set lTarget to a version such as 1.2.3`},
		{"a task by hand with a version that is none", taskManifest(`constraints: [{ltarget: abc, operand: version, rTarget: ">= 1"}]`),
			`spec.constraints: "abc" is not a version`},
		{"affinity to a group that is not there",
			manifest("bad", `[{name: a, placement: {affinity: [{taskGroup: nope}]}, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`placement of a: "nope" is not a task group of this Job; use one of a`},
		{"antiAffinity to a group that is not there, in a template",
			template(manifest("bad", `[{name: a, placement: {antiAffinity: [{taskGroup: nope}]}, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`)),
			`placement of a: "nope" is not a task group of this Job; use one of a`},
		{"a requeue of the failed tasks and of named ones", manifest("bad", goodGroups, "requeue: {generation: 1, scope: failed, tasks: [bad-a-0-t]}"),
			`spec.requeue: scope failed and tasks are mutually exclusive; set only one of them`},
		{"a gang that is too large",
			manifest("bad", `[{name: a, gang: true, count: 129, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`a gang has at most 128 replicas`},
		{"half a device", manifest("bad", one(`{name: t, driver: exec, resources: {devices: {arm: 500m}}, config: {execConfig: {command: x}}}`)),
			`devices of a/t: device counts must be integers from 0 to 1000000`},
		{"a device without a name", manifest("bad", one(`{name: t, driver: exec, resources: {devices: {"": 1}}, config: {execConfig: {command: x}}}`)),
			`devices of a/t: device names consist of 1 to 63 letters, digits`},
		{"a device with a space in its name, in a template", template(manifest("bad", one(`{name: t, driver: exec, resources: {devices: {a b: 1}}, config: {execConfig: {command: x}}}`))),
			`devices of a/t: device names consist of 1 to 63 letters, digits`},
		{"a task by hand that needs a device with a space in its name", taskManifest(`resources: {devices: {a b: 1}}`), `spec.resources.devices: device names consist of`},
		{"a robot that has a device with a space in its name", robotManifest("a", `{robotId: a, capacity: {a b: 1}}`), `spec.capacity: "a b": device names consist of`},
		{"a robot with half a device", robotManifest("a", `{robotId: a, capacity: {arm: 500m}}`), `spec.capacity: arm must be an integer`},
		{"a missing command", manifest("bad", one(`{name: t, driver: exec, config: {execConfig: {}}}`)), `execConfig.command: Required value`},
		{"an empty command", manifest("bad", one(`{name: t, driver: exec, config: {execConfig: {command: ""}}}`)), `execConfig.command.*at least 1 chars`},
		{"the config of another driver", manifest("bad", one(`{name: t, driver: exec, config: {javaConfig: {jarPath: a.jar}}}`)),
			`drivers exec and raw_exec need config.execConfig`},
		{"the config of another driver beside its own", manifest("bad", one(`{name: t, driver: exec, config: {execConfig: {command: x}, dockerConfig: {image: a}}}`)),
			`drivers exec and raw_exec need config.execConfig with a command, and no other config`},
		{"a container with two commands", manifest("bad", one(`{name: t, driver: docker, config: {execConfig: {command: x}, dockerConfig: {image: a, command: sh}}}`)),
			`execConfig of a/t: is another spelling of command and args in dockerConfig`},
		{"a jar with an image", manifest("bad", one(`{name: t, driver: java, config: {javaConfig: {jarPath: a.jar}, dockerConfig: {image: a}}}`)),
			`driver java needs config.javaConfig with a jarPath, and no other config`},
		{"a driver that does not exist", manifest("bad", one(`{name: t, driver: qemu, config: {}}`)), `driver: Unsupported value: "qemu": supported values`},
		{"two groups of one name", manifest("bad", `[{name: a, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}, {name: a, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`spec.taskGroups\[1\]: Duplicate value`},
		{"an environment variable with a space in its name", manifest("bad", one(`{name: t, driver: exec, env: {"A B": "1"}, config: {execConfig: {command: x}}}`)),
			`env of a/t: names of environment variables consist of letters`},
		{"an environment variable that starts with a digit", manifest("bad", one(`{name: t, driver: exec, env: {1A: "1"}, config: {execConfig: {command: x}}}`)),
			`env of a/t: names of environment variables consist of letters, digits, _, - and ., and must not start with a digit`},
		{"an environment variable without a name", manifest("bad", one(`{name: t, driver: exec, env: {"": "1"}, config: {execConfig: {command: x}}}`)),
			`env of a/t: names of environment variables consist of letters`},
		{"a task by hand with an environment variable that has an = in its name",
			taskManifest(`env: {"A=B": "1"}`),
			`spec.env: names of environment variables consist of letters, digits, _, - and .`},
		{"an environment variable with a NUL in its value", manifest("bad", one(`{name: t, driver: exec, env: {A: "x\u0000y"}, config: {execConfig: {command: x}}}`)),
			`env of a/t: values of environment variables must not contain NUL characters`},
		{"a task by hand with a NUL in its environment", taskManifest(`env: {A: "x\u0000y"}`), `spec.env: values of environment variables must not contain NUL`},
		{"a secret for a variable with a space in its name",
			manifest("bad", one(`{name: t, driver: exec, secretEnv: {A B: {secretName: a, key: b}}, config: {execConfig: {command: x}}}`)),
			`secretEnv of a/t: names of environment variables consist of letters`},
		{"a task by hand with a secret for a variable with a space in its name", taskManifest(`secretEnv: {A B: {secretName: a, key: b}}`),
			`spec.secretEnv: names of environment variables consist of letters`},
		{"a variable that is in env and in secretEnv",
			manifest("bad", one(`{name: t, driver: exec, env: {A: x}, secretEnv: {A: {secretName: a, key: b}}, config: {execConfig: {command: x}}}`)),
			`secretEnv of a/t: a variable is also set in env; remove it from one of them`},
		{"a task by hand with a variable that is in env and in secretEnv", taskManifest(`env: {A: x}, secretEnv: {A: {secretName: a, key: b}}`),
			`spec.secretEnv: a variable is also set in env`},
		{"a group by hand with a variable that is in env and in secretEnv",
			"apiVersion: robot.k8s4r.io/v1alpha1\nkind: TaskGroup\nmetadata: {name: bad}\nspec: {jobName: x, groupName: a, tasks: " +
				`[{name: t, driver: exec, env: {A: x}, secretEnv: {A: {secretName: a, key: b}}, config: {execConfig: {command: x}}}]}`,
			`spec.tasks\[\].secretEnv of t: a variable is also set in env`},
		{"a secret without a key", manifest("bad", one(`{name: t, driver: exec, secretEnv: {A: {secretName: a}}, config: {execConfig: {command: x}}}`)),
			`secretEnv.A.key: Required value`},
		{"a negative cpu", manifest("bad", one(`{name: t, driver: exec, resources: {cpu: "-1"}, config: {execConfig: {command: x}}}`)),
			`resources of a/t: cpu, memory and disk must be non-negative quantities`},
		{"a quantity beyond all numbers", manifest("bad", one(`{name: t, driver: exec, resources: {memory: "1e99999999999999999999"}, config: {execConfig: {command: x}}}`)),
			`resources of a/t: cpu, memory and disk must be non-negative quantities`},
		{"a timeout that is no time", manifest("bad", one(`{name: t, driver: exec, timeout: soon, config: {execConfig: {command: x}}}`)),
			`timeout: Invalid value: "soon".*must be a duration such as 90s`},
		{"a timeout beyond all clocks", manifest("bad", one(`{name: t, driver: exec, timeout: 99999999999h, config: {execConfig: {command: x}}}`)),
			`timeout: Invalid value.*must be a duration such as 90s`},
		{"a timeout below a millisecond", manifest("bad", one(`{name: t, driver: exec, timeout: 500us, config: {execConfig: {command: x}}}`)),
			`timeout: Invalid value: "500us": must be a duration such as 90s`},
		{"a cpu beyond all machines", manifest("bad", one(`{name: t, driver: exec, resources: {cpu: "1e16"}, config: {execConfig: {command: x}}}`)),
			`resources of a/t: cpu 1e16 is more than 1M; request what the task needs`},
		{"a memory beyond all machines", manifest("bad", one(`{name: t, driver: exec, resources: {memory: 1Ei}, config: {execConfig: {command: x}}}`)),
			`resources of a/t: memory 1Ei is more than 1Pi`},
		{"a task by hand with a disk beyond all machines", taskManifest(`resources: {disk: "1e19"}`), `spec.resources: disk 1e19 is more than 1Pi`},
		{"a robot with a memory beyond all machines", robotManifest("a", `{robotId: a, capacity: {memory: 1Ei}}`), `spec.capacity: memory 1Ei is more than 1Pi`},
		{"a template with a syntax error", manifest("bad", one(`{name: t, driver: exec, templates: [{destPath: a, embeddedTmpl: "{{ if }}"}], config: {execConfig: {command: x}}}`)),
			`spec.taskGroups\[a\].tasks\[t\].templates\[0\]:1: missing value for if`},
		{"a template with a syntax error, in a JobTemplate", template(manifest("bad", one(`{name: t, driver: exec, templates: [{destPath: a, embeddedTmpl: "{{ if }}"}], config: {execConfig: {command: x}}}`))),
			`spec.taskGroups\[a\].tasks\[t\].templates\[0\]:1: missing value for if`},
		{"a task by hand with an artifact of an unknown scheme", taskManifest(`artifacts: [{getterSource: "git::x"}]`),
			`spec.artifacts\[0\].*getterSource must begin with http://`},
		{"a container with a command that is a number", manifest("bad", one(`{name: t, driver: docker, config: {dockerConfig: {image: x, command: 5}}}`)),
			`dockerConfig.command of a/t: must be a text, or a list of texts`},
		{"a container with a port above 65535", manifest("bad", one(`{name: t, driver: docker, config: {dockerConfig: {image: x, ports: [{hostPort: 70000, containerPort: 80}]}}}`)),
			`dockerConfig.ports of a/t: must be texts such as 8080:80/udp, or objects`},
		{"a container with a volume without a path", manifest("bad", one(`{name: t, driver: docker, config: {dockerConfig: {image: x, volumes: [{hostPath: a, containerPath: /b}]}}}`)),
			`dockerConfig.volumes of a/t: must be texts such as /srv/maps:/maps:ro, or objects`},
		{"a classpath that is an object", manifest("bad", one(`{name: t, driver: java, config: {javaConfig: {jarPath: a.jar, class: X, classpath: {a: b}}}}`)),
			`javaConfig.classpath of a/t: must be a text of paths`},
		{"a deadline that is over at once", manifest("bad", goodGroups, "activeDeadline: 0s"), `spec.activeDeadline: Invalid value: "0s": must be at least 1s; omit it`},
		{"a deadline that is over at once, in a template", template(manifest("bad", goodGroups, "activeDeadline: 999ms")), `spec.activeDeadline: Invalid value: "999ms": must be at least 1s`},
		{"a stopOnRobotAfter of zero", manifest("bad", goodGroups, "disconnect: {stopOnRobotAfter: 0s}"), `stopOnRobotAfter: Invalid value: "0s": must be at least 1s; omit it`},
		{"a priority of 101", manifest("bad", goodGroups, "priority: 101"), `spec.priority.*less than or equal to 100`},
		{"a type that does not exist", manifest("bad", goodGroups, "type: daemon"), `spec.type: Unsupported value: "daemon"`},
		{"a system job that counts its replicas", manifest("bad", `[{name: a, count: 3, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`, "type: system"),
			`spec.taskGroups\[\].count of a: a system job runs one replica on every matching robot; omit count`},
		{"a system job that starts all or none", manifest("bad", `[{name: a, gang: true, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`, "type: system"),
			`spec.taskGroups\[\].gang of a: replicas of a system job are placed one by one`},
		{"a disk that migrates", manifest("bad", `[{name: a, ephemeralDisk: {migrate: true}, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}]`),
			`migrate is not supported: pass data that must survive`},
		{"a name of 300 characters", manifest(strings.Repeat("a", 300), goodGroups), `metadata.name.*no more than 253`},
		{"a robot id with a slash", robotManifest("a", `{robotId: a/b}`), `spec.robotId: Invalid value.*must be 1 to 63 characters of a-z`},
		{"a robot id that is not the object's name", robotManifest("a", `{robotId: b}`), `metadata.name must be the same as spec.robotId`},
		{"a capacity below zero", robotManifest("a", `{robotId: a, capacity: {cpu: "-1"}}`), `spec.capacity: cpu must be a non-negative quantity`},
		{"more tasks than a message can name", robotManifest("a", `{robotId: a, capacity: {tasks: 1001}}`), `spec.capacity: tasks must be an integer of at most 1000`},
		{"half a task", robotManifest("a", `{robotId: a, capacity: {tasks: 500m}}`), `spec.capacity: tasks must be an integer of at most 1000`},
	} {
		t.Run(row.name, func(t *testing.T) {
			// A long line is easier to match than one that the server folds.
			out, err := s.tryApply(row.manifest)
			if err == nil || !regexp.MustCompile(`(?s)`+row.want).MatchString(out) {
				t.Errorf("want it refused with %q, got %v:\n%s", row.want, err, out)
			}
		})
	}

	t.Run("a field without effect is accepted with a warning", func(t *testing.T) {
		out, err := s.tryApply(strings.Replace(taskManifest("daemon: true"), "name: bad", "name: warned", 1))
		if err != nil || !strings.Contains(out, "spec.daemon: has no effect") {
			t.Errorf("got %v:\n%s", err, out)
		}
	})
	t.Run("services are accepted with a warning", func(t *testing.T) {
		out, err := s.tryApply(manifest("served", one(`{name: t, driver: exec, services: [{name: web}], config: {execConfig: {command: x}}}`)))
		if err != nil || !strings.Contains(out, "services of a/t: have no effect") {
			t.Errorf("got %v:\n%s", err, out)
		}
	})
	t.Run("the forms of the older protocol are accepted", func(t *testing.T) {
		s.apply(manifest("older", `[{name: a, constraints: [{lTarget: "${attr.os}", operand: "\"=\"", rTarget: linux}], tasks: [
  {name: c, driver: docker, config: {dockerConfig: {image: x, command: [sh, -c, ls], ports: [{hostPort: 8080, containerPort: 80, protocol: udp}], volumes: [{hostPath: /a, containerPath: /b, readOnly: true}]}}},
  {name: d, driver: docker, config: {execConfig: {command: sh, args: [-c, ls]}, dockerConfig: {image: x}}},
  {name: j, driver: java, config: {javaConfig: {jarPath: a.jar, class: X, classpath: [b.jar, c.jar]}}},
  {name: net, driver: exec, config: {execConfig: {command: x}}, resources: {networks: [{mbits: 10, reservedPorts: [{label: HTTP_API, value: 80}], dynamicPorts: [{label: db}]}]}}]}]`))
	})
	t.Run("the names of environment variables that Kubernetes takes are taken", func(t *testing.T) {
		env := `{name: t, driver: exec, env: {MY-APP.log_level: "1", .hidden: "2", -x: "3"}, config: {execConfig: {command: x}}}`
		s.apply(manifest("dotted", one(env)))
		s.apply("apiVersion: robot.k8s4r.io/v1alpha1\nkind: Task\nmetadata: {name: dotted}\nspec: " + env)
	})
	t.Run("an existing Job's groups stay", func(t *testing.T) {
		s.apply(manifest("kept", goodGroups))
		out, err := s.tryApply(manifest("kept", strings.ReplaceAll(goodGroups, "name: a", "name: b")))
		if err == nil || !strings.Contains(out, "spec.taskGroups: b cannot be added to an existing Job; create another Job") {
			t.Errorf("got %v:\n%s", err, out)
		}
	})
}

func TestAgent_RejectsInvalidRobotID(t *testing.T) {
	out, err := exec.Command(testkit.BinaryPath(t, "k8s4r-agent"), "--robot-id", "a/b", "--state-dir", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--robot-id") {
		t.Errorf("got %v: %s", err, out)
	}
}

func TestPlacement_ReportsMissingDriver(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "2")
	s.apply(manifest("contained", `[{name: a, tasks: [{name: t, driver: docker, config: {dockerConfig: {image: busybox}}}]}]`))
	s.apply(manifest("plain", goodGroups))
	s.awaitJob("plain", "completed", 30*time.Second)
	testkit.Eventually(t, 30*time.Second, "the task says why it waits", func() bool {
		out, _ := s.kubectl("describe", "rtask", "contained-a-0-t")
		return strings.Contains(out, "2 of 2 robots: driver docker is not offered") ||
			regexp.MustCompile(`0 of 2 robots.*driver docker is not offered`).MatchString(out)
	})
}

// TestServerAndAgent_IgnoreMalformedMessages publishes malformed messages on every topic that the server or an agent
// reads, and expects both to work on.
func TestServerAndAgent_IgnoreMalformedMessages(t *testing.T) {
	t.Parallel()
	for _, broker := range brokers {
		t.Run(broker.name, func(t *testing.T) {
			t.Parallel()
			garbageOnEveryTopic(t, broker.args(t))
		})
	}
}

func garbageOnEveryTopic(t *testing.T, args []string) {
	s := startLegacy(t, append([]string{"--robots", "1"}, args...)...)
	s.awaitRobot("robot-1", string(lifecycle.RobotOnline), 30*time.Second)
	hold := s.file("hold")
	s.hold(hold)
	s.create(jobOf("running", 1, shell("wait", while(hold))))
	task := s.awaitTask("running-main-0-wait", "running", 30*time.Second)

	topics := []string{
		wire.TopicRegister, wire.TopicHeartbeat,
		wire.RobotTopic("robot-1", wire.KindRegister), wire.RobotTopic("robot-1", wire.KindHeartbeat),
		wire.RobotTopic("robot-1", wire.KindDispatch), wire.RobotTopic("robot-1", wire.KindState),
		wire.RobotTopic("robot-1", wire.KindAck), wire.RobotTopic("robot-1", wire.KindResponse),
		wire.RobotTopic("robot-1", wire.KindPresence), wire.TaskTopic("robot-1", string(task.UID), wire.KindStatus),
		wire.TaskTopic("robot-1", string(task.UID), wire.KindLogs),
		wire.RobotTopic("no-such-robot", wire.KindHeartbeat), wire.TaskTopic("robot-1", "no-such-uid", wire.KindStatus),
		"k8s4r/robots/UPPER_case/register", "k8s4r/robots/robot-1/tasks/../status",
	}
	payloads := map[string][]byte{
		"malformed JSON":             []byte(`{"robotId": "robot-1", `),
		"JSON of no shape":           []byte(`[1, 2, {"robotId": {}}]`),
		"binary garbage":             {0x00, 0xff, 0xfe, 0x80, 0x01, 0x7f, 0xc0},
		"nothing":                    {},
		"a megabyte":                 []byte(strings.Repeat("x", 1<<20)),
		"a robot id that is no name": []byte(`{"robotId":"a/b/#","taskUid":"../../x"}`),
	}
	for name, payload := range payloads {
		for _, topic := range topics {
			publishOnce(t, hostPort(s.MQTTURL), topic, payload)
		}
		t.Logf("%s: sent to %d topics", name, len(topics))
	}
	os.Remove(hold)
	s.awaitJob("running", "completed", 30*time.Second)
	s.create(jobOf("after", 1, shell("say", "echo fine")))
	s.awaitJob("after", "completed", 30*time.Second)
	out, _ := s.kubectl("get", "robots", "-A", "-o", "name")
	if strings.TrimSpace(out) != "robot.robot.k8s4r.io/robot-1" {
		t.Errorf("garbage made robots:\n%s", out)
	}
}

// publishOnce opens its own connection, because a broker may close it because of the payload.
func publishOnce(t *testing.T, address, topic string, payload []byte) {
	t.Helper()
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + address).SetAutoReconnect(false).SetClientID("garbage"))
	if token := c.Connect(); !token.WaitTimeout(10*time.Second) || token.Error() != nil {
		t.Fatalf("connect: %v", token.Error())
	}
	c.Publish(topic, wire.QoS, false, payload).WaitTimeout(2 * time.Second)
	c.Disconnect(10)
}
