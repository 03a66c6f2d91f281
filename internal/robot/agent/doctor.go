package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"text/tabwriter"

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/robot/agent/diagnose"
	"k8s4r.io/k8s4r/internal/robot/agent/policyfile"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/driver/builtin"
)

const doctorUsage = `Usage: k8s4r-agent doctor [flags]

Checks whether an agent can run on this robot, and proposes remedies. It changes
nothing and does not disturb a running agent. The exit status is 0 if the agent can
run, else 1. The configuration is that of the service, /etc/k8s4r/agent.yaml, unless
--config names another file.

`

// doctorReport is the JSON output of doctor.
type doctorReport struct {
	RobotID  string             `json:"robotId"`
	Worst    diagnose.Level     `json:"worst"`
	Findings []diagnose.Finding `json:"findings"`
}

// doctorCommand checks this robot and prints the findings.
func doctorCommand(args []string, stdout, stderr io.Writer) int {
	a := newAgentQuery("k8s4r-agent doctor", doctorUsage)
	if err := a.parseQuery(args, stdout); err != nil {
		return exitForError(err, stdout, stderr)
	}
	e := a.diagnoseRobot(context.Background())
	if a.output == "json" {
		writeJSON(stdout, e)
	} else {
		writeReport(stdout, e)
	}
	if e.Worst == diagnose.Fail {
		return exitFailed
	}
	return exitOK
}

// diagnoseRobot checks the configuration, the agent if it runs, and the robot.
func (a *agentQuery) diagnoseRobot(ctx context.Context) doctorReport {
	c := a.config
	subject := diagnose.Subject{
		RobotID: c.RobotID, StateDir: c.StateDir, TaskDirs: runner.StateDir(c.StateDir).TaskDirs(), Broker: c.Broker, Engine: c.DockerSocket, Drivers: builtin.NewSet(c.DockerSocket).Offered(), TaskUser: c.effectiveTaskUser(),
		BatteryBackedClock: c.BatteryBackedClock,
	}
	h, err := a.fetchHealth(ctx)
	if err == nil {
		// The agent has probed the robot with its own permissions, which may differ.
		subject.RobotID, subject.Drivers, subject.Isolation, subject.TaskUser = h.RobotID, h.Drivers, &h.Isolation, h.TaskUser
		subject.Broker = a.brokerOf(h)
	}
	found := append(a.findExposedSecrets(), agentFinding(h, err), a.policyFinding())
	found = append(found, diagnose.Examine(ctx, subject)...)
	return doctorReport{RobotID: subject.RobotID, Worst: diagnose.Worst(found), Findings: found}
}

// brokerOf returns the broker of the running agent, which may have settings that this command line lacks. A
// URL with a password is not used: the agent does not send the password.
func (a *agentQuery) brokerOf(h Health) *url.URL {
	u, err := url.Parse(h.Broker)
	if err != nil || u.Host == "" || a.config.BrokerIsGiven {
		return a.config.Broker
	}
	if _, isHidden := u.User.Password(); isHidden {
		return a.config.Broker
	}
	return u
}

// findExposedSecrets looks for files with a secret that other users can read.
func (a *agentQuery) findExposedSecrets() []diagnose.Finding {
	files := []string{}
	if a.tokenFile != "" {
		files = append(files, a.tokenFile)
	}
	if _, secret := a.config.Broker.User.Password(); secret && a.file != "" {
		files = append(files, a.file)
	}
	var found []diagnose.Finding
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			found = append(found, diagnose.Finding{
				Level: diagnose.Warn, Check: "secrets", Message: fmt.Sprintf("%s holds a secret, and other users can read it", path), Remedy: "chmod 600 " + path,
			})
		}
	}
	return found
}

// agentFinding returns the finding about the agent itself.
func agentFinding(h Health, err error) diagnose.Finding {
	f := diagnose.Finding{Level: diagnose.Warn, Check: "agent"}
	switch {
	case errors.Is(err, errNoAgent):
		f.Message, f.Remedy = "no agent runs with this state directory", "systemctl start k8s4r-agent"
	case err != nil:
		f.Message, f.Remedy = err.Error(), "run this as the agent's user"
	case h.Problem != "":
		f.Level, f.Message, f.Remedy = diagnose.Fail, h.Problem, "make room on the disk of "+h.StateDir+", and check that it is writable"
	case h.Version != version.Version && !h.isUpdated():
		f.Message = fmt.Sprintf("the running agent is %s, this program is %s", h.Version, version.Version)
		f.Remedy = "systemctl restart k8s4r-agent; its tasks keep running"
	case h.notReadyReason() != nil:
		f.Message, f.Remedy = fmt.Sprintf("process %d: %v", h.PID, h.notReadyReason()), "see its log: journalctl -u k8s4r-agent"
	default:
		f.Level, f.Message = diagnose.OK, fmt.Sprintf("process %d, connected and registered", h.PID)
	}
	return f
}

// isUpdated reports whether the agent runs another program than the installed one.
func (h Health) isUpdated() bool { return h.Update != nil && h.Update.Slot != slots.Installed }

// policyFinding returns the finding about the robot's policy file.
func (a *agentQuery) policyFinding() diagnose.Finding {
	f := diagnose.Finding{Level: diagnose.OK, Check: "policy"}
	root, err := a.config.areTasksRoot()
	if err == nil {
		f.Message, err = policyfile.Describe(policyfile.Config{Path: a.config.PolicyFile, TasksAreRoot: root})
	}
	if err != nil {
		f.Level, f.Message = diagnose.Fail, err.Error()
		f.Remedy = "correct the file; k8s4r-agent policy check checks it"
	}
	return f
}

// writeReport prints a line for each finding, and its remedy below.
func writeReport(w io.Writer, e doctorReport) {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	count := map[diagnose.Level]int{}
	for _, f := range e.Findings {
		count[f.Level]++
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Level, f.Check, f.Message)
		if f.Remedy != "" {
			fmt.Fprintf(table, "\t\t> %s\n", f.Remedy)
		}
	}
	table.Flush()
	verdict := "can run"
	if e.Worst == diagnose.Fail {
		verdict = "cannot run"
	}
	fmt.Fprintf(w, "\nThe agent of robot %s %s here: %d ok, %s, %s.\n", e.RobotID, verdict, count[diagnose.OK],
		pluralize(count[diagnose.Warn], "warning", "warnings"), pluralize(count[diagnose.Fail], "failure", "failures"))
}
