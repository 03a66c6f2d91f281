package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/cli"
	"k8s4r.io/k8s4r/internal/console"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/robot/agent"
	"k8s4r.io/k8s4r/internal/server"
)

// programs are the programs whose pages show the output of --help.
var programs = []struct {
	name, purpose string
	main          func(args []string, stdout, stderr io.Writer) int
}{
	{"k8s4r-manager", "The manager runs the controllers, the scheduler and the admission webhook.", manager.Main},
	{"k8s4r-server", "The server connects the API server with the MQTT broker.", server.Main},
	{"k8s4r-console", "The console serves web pages, the REST API and the event stream.", console.Main},
	{"k8s4r-agent", "The agent runs tasks on a robot.", agent.Main},
}

func renderPrograms(root string, pages map[string]string) error {
	for _, program := range programs {
		p := newPage(program.name)
		p.addLine("\n%s", program.purpose)
		var help bytes.Buffer
		if status := program.main([]string{"--help"}, &help, &help); status != 0 {
			return fmt.Errorf("%s --help: exit status %d: %s", program.name, status, help.String())
		}
		p.addCode(help.String())
		pages["cli/"+program.name+".md"] = p.String()
	}
	pages["cli/k8s4r.md"] = renderCommands()
	up, err := renderUp(root)
	pages["cli/k8s4r-up.md"] = up
	return err
}

// renderCommands returns the page of all commands that k8s4r and kubectl-k8s4r share.
func renderCommands() string {
	os.Args[0] = "k8s4r" // the commands print it in their examples
	root := cli.NewRootCommand(cli.Streams{Out: io.Discard, Err: io.Discard})
	root.InitDefaultCompletionCmd()
	p := newPage("k8s4r")
	p.addLine("\nThe commands of `k8s4r` and of the kubectl plugin `kubectl-k8s4r`. [The command line](../cli.md)")
	p.addLine("explains them with examples. `k8s4r` has more: [`k8s4r up`, `k8s4r backup` and")
	p.addLine("`k8s4r restore`](k8s4r-up.md), [`k8s4r ca`](../../how-to/replace-the-robots-ca.md) and `k8s4r kubectl`.")
	addCommand(p, root)
	p.addLine("\n## Connection flags\n\nAll commands that use the cluster have these flags. They mean what they mean for kubectl.")
	if run, _, err := root.Find([]string{"run"}); err == nil {
		addFlags(p, run.LocalFlags(), isConnectionFlag)
	}
	return p.String()
}

// connectionFlags select the cluster and the user. They are listed once for all commands.
var connectionFlags = []string{"kubeconfig", "context", "namespace", "as", "as-group", "as-uid", "request-timeout"}

func isConnectionFlag(f *pflag.Flag) bool { return slices.Contains(connectionFlags, f.Name) }

func isOwnFlag(f *pflag.Flag) bool { return !isConnectionFlag(f) }

// addCommand adds the section of a command that can be run, then those of its subcommands.
func addCommand(p *page, c *cobra.Command) {
	if c.IsAvailableCommand() && c.Runnable() && !c.HasAvailableSubCommands() {
		p.addLine("\n## %s\n\n%s.", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
		p.addCode(c.UseLine())
		if c.Long != "" && c.Long != c.Short {
			p.addCode(c.Long)
		}
		p.addCode(c.Example)
		addFlags(p, c.LocalFlags(), isOwnFlag)
	}
	for _, sub := range c.Commands() {
		addCommand(p, sub)
	}
}

// addFlags adds a table of the flags that isListed selects, if there are any.
func addFlags(p *page, flags *pflag.FlagSet, isListed func(*pflag.Flag) bool) {
	started := false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || !isListed(f) {
			return
		}
		if !started {
			p.addTable("flag", "default", "meaning")
			started = true
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		_, usage := pflag.UnquoteUsage(f)
		p.addRow(name, formatDefault(f.DefValue), usage)
	})
}

// formatDefault returns the default of a flag as a code span. Defaults that mean "not set" are
// left out.
func formatDefault(value string) string {
	switch value {
	case "", "[]", "0", "0s", "false":
		return ""
	}
	return formatCode(value)
}

// renderUp returns the page of `k8s4r up`, whose module this program cannot import. The flags are
// read from its source.
func renderUp(root string) (string, error) {
	p := newPage("k8s4r up")
	p.addLine("\n`k8s4r up` runs an API server, a broker, the manager, the server, the console, robots and a node for")
	p.addLine("pods on one machine.")
	p.addTable("flag", "default", "meaning")
	flags, err := parseFlagCalls(filepath.Join(root, "standalone/internal/up/options.go"))
	for _, f := range flags {
		p.addRow("`--"+f.name+"`", f.value, f.usage)
	}
	if err != nil {
		return "", err
	}
	for _, c := range dataCommands {
		p.addLine("\n## %s\n\n%s", c.usage, c.purpose)
		p.addTable("flag", "default", "meaning")
		flags, err := parseFlagCalls(filepath.Join(root, "standalone/internal/backup", c.file))
		if err != nil {
			return "", err
		}
		for _, f := range flags {
			p.addRow("`--"+f.name+"`", f.value, f.usage)
		}
	}
	return p.String(), nil
}

// dataCommands are the commands for the data of `k8s4r up`.
var dataCommands = []struct{ usage, purpose, file string }{
	{"k8s4r backup FILE", "Writes the data to one file, whether `up` runs or not. [How to use it](../../how-to/back-up-and-restore.md).", "create_command.go"},
	{"k8s4r restore FILE", "Makes a backup the content of a data directory in which `up` does not run.", "restore_command.go"},
}
