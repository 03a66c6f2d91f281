package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/robot/agent/policyfile"
)

const policyUsage = `Usage: k8s4r-agent policy check [flags] [MANIFEST...]

Checks the policy file of this robot, or that of --policy, and whether it allows the
tasks of Jobs, JobTemplates, TaskGroups and Tasks. It needs neither a running agent nor
a cluster, so it can also check a file before it is installed. The exit status is 0 if
the file is valid and allows all tasks, 1 if it does not allow one, and 2 if a file is
not valid.

  k8s4r-agent policy check
  k8s4r-agent policy check --policy arm.yaml job.yaml

`

// policyCheck is the command line of policy check.
type policyCheck struct {
	flagSet
	policy, namespace string
}

// policyCommand runs the subcommand policy check.
func policyCommand(args []string, stdout, stderr io.Writer) int {
	c := policyCheck{flagSet: newFlagSet("k8s4r-agent policy check", policyUsage)}
	c.StringVar(&c.policy, "policy", policyfile.DefaultPath, "policy `file`")
	c.StringVar(&c.namespace, "namespace", "", "`namespace` of objects that name none (default: default)")
	if len(args) > 0 && args[0] == "check" {
		args = args[1:]
	} else if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return exitForError(errors.New("policy: the subcommand is check: k8s4r-agent policy check [flags] [MANIFEST...]"), stdout, stderr)
	}
	if err := c.parseFlags(args, stdout); err != nil {
		return exitForError(err, stdout, stderr)
	}
	refused, err := c.checkManifests(stdout)
	switch {
	case err != nil:
		return exitForError(err, stdout, stderr)
	case refused > 0:
		_, _ = fmt.Fprintf(stdout, "%s not allowed.\n", pluralize(refused, "value is", "values are"))
		return exitFailed
	}
	return exitOK
}

// checkManifests prints what the policy does not allow of the tasks in the manifests, and returns the
// number of violations.
func (c policyCheck) checkManifests(stdout io.Writer) (refused int, err error) {
	content, err := os.ReadFile(c.policy)
	if err != nil {
		return 0, fmt.Errorf("policy: %w", err)
	}
	file, err := policyfile.Parse(content)
	if err != nil {
		return 0, fmt.Errorf("policy: %s: %w", c.policy, err)
	}
	fmt.Fprintf(stdout, "%s is valid.\n", c.policy)
	for _, path := range c.Args() {
		n, err := c.checkManifest(stdout, file.Policy, path)
		if refused += n; err != nil {
			return refused, fmt.Errorf("%s: %w", path, err)
		}
	}
	return refused, nil
}

func (c policyCheck) checkManifest(stdout io.Writer, p *policy.Policy, path string) (refused int, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	m, err := policyfile.ParseManifest(content, c.namespace)
	if err != nil {
		return 0, err
	}
	for _, t := range m.Tasks {
		violations := policy.Evaluate(p, t.Subject)
		for _, v := range violations {
			fmt.Fprintf(stdout, "%s: %s: %s\n", path, t.Object, v.WithPath(t.Path))
		}
		if t.Subject.HasReferences() {
			fmt.Fprintf(stdout, "%s: %s: %s.config.execConfig.command: has references, so the robot evaluates it when it starts the task\n", path, t.Object, t.Path)
		}
		refused += len(violations)
	}
	for _, object := range m.Skipped {
		fmt.Fprintf(stdout, "%s: %s: defines no tasks of robots; check its JobTemplates\n", path, object)
	}
	fmt.Fprintf(stdout, "%s: %s checked.\n", path, pluralize(len(m.Tasks), "task", "tasks"))
	return refused, nil
}
