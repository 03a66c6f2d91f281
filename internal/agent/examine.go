package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"k8s4r.io/k8s4r/internal/agent/doctor"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/version"
)

const doctorUsage = `Usage: k8s4r-agent doctor [flags]

Tells what this robot lacks to run an agent well, and how to get it. It changes
nothing, and leaves an agent that runs alone. The exit status is 0 when the
agent can work, and 1 when it could not. The configuration is that of the
service, /etc/k8s4r/agent.yaml, if --config does not name another.

`

// examination is the output of doctor for programs.
type examination struct {
	RobotID  string           `json:"robotId"`
	Worst    doctor.Level     `json:"worst"`
	Findings []doctor.Finding `json:"findings"`
}

// doctorCommand examines this robot.
func doctorCommand(args []string, stdout, stderr io.Writer) int {
	a := newAbout("k8s4r-agent doctor", doctorUsage)
	if err := a.parse(args, stdout); err != nil {
		return refuse(err, stdout, stderr)
	}
	e := a.examine(context.Background())
	if a.output == "json" {
		writeJSON(stdout, e)
	} else {
		writeExamination(stdout, e)
	}
	if e.Worst == doctor.Fail {
		return exitFailed
	}
	return exitOK
}

// examine looks at the configuration, the agent if it runs, and the robot.
func (a *about) examine(ctx context.Context) examination {
	c := a.config
	subject := doctor.Subject{
		RobotID: c.RobotID, StateDir: c.StateDir, Broker: c.Broker, Engine: c.DockerSocket, Drivers: driver.Builtin(c.DockerSocket).Offered(), TaskUser: c.taskUser(),
	}
	h, err := a.ask(ctx)
	if err == nil {
		// It has tried with its own rights, which may not be ours.
		subject.RobotID, subject.Drivers, subject.Isolation, subject.TaskUser = h.RobotID, h.Drivers, &h.Isolation, h.TaskUser
	}
	found := append(a.secrets(), runs(h, err))
	found = append(found, doctor.Examine(ctx, subject)...)
	return examination{RobotID: subject.RobotID, Worst: doctor.Worst(found), Findings: found}
}

// secrets looks for files with a secret that others can read.
func (a *about) secrets() []doctor.Finding {
	files := []string{}
	if a.tokenFile != "" {
		files = append(files, a.tokenFile)
	}
	if _, secret := a.config.Broker.User.Password(); secret && a.file != "" {
		files = append(files, a.file)
	}
	var found []doctor.Finding
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			found = append(found, doctor.Finding{
				Level: doctor.Warn, Check: "secrets", Says: fmt.Sprintf("%s holds a secret, and others can read it", path), Remedy: "chmod 600 " + path,
			})
		}
	}
	return found
}

// runs tells of the agent, which may not run.
func runs(h Health, err error) doctor.Finding {
	f := doctor.Finding{Level: doctor.Warn, Check: "agent"}
	switch {
	case errors.Is(err, errSilent):
		f.Says, f.Remedy = "no agent runs with this state directory", "systemctl start k8s4r-agent"
	case err != nil:
		f.Says, f.Remedy = err.Error(), "run this as the user that the agent runs as"
	case h.Problem != "":
		f.Level, f.Says, f.Remedy = doctor.Fail, h.Problem, "make room on the disk of "+h.StateDir+", and see that it can be written"
	case h.Version != version.Version:
		f.Says = fmt.Sprintf("the agent that runs is %s, this program is %s", h.Version, version.Version)
		f.Remedy = "systemctl restart k8s4r-agent; its tasks go on"
	case h.unready() != nil:
		f.Says, f.Remedy = fmt.Sprintf("process %d: %v", h.PID, h.unready()), "see its log: journalctl -u k8s4r-agent"
	default:
		f.Level, f.Says = doctor.OK, fmt.Sprintf("process %d, connected and registered", h.PID)
	}
	return f
}

// writeExamination prints a line for each finding, and below it what to do.
func writeExamination(w io.Writer, e examination) {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	count := map[doctor.Level]int{}
	for _, f := range e.Findings {
		count[f.Level]++
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Level, f.Check, f.Says)
		if f.Remedy != "" {
			fmt.Fprintf(table, "\t\t> %s\n", f.Remedy)
		}
	}
	table.Flush()
	verdict := "can work"
	if e.Worst == doctor.Fail {
		verdict = "cannot work"
	}
	fmt.Fprintf(w, "\nAn agent for the robot %s %s here: %d ok, %s, %s.\n", e.RobotID, verdict, count[doctor.OK],
		counted(count[doctor.Warn], "warning", "warnings"), counted(count[doctor.Fail], "failure", "failures"))
}
