// Package cli implements the command line for users and operators: submit and follow Jobs, show
// what runs where, explain what is wrong, delete objects.
//
// It is linked into two programs: kubectl-k8s4r, which is also the kubectl plugin `kubectl
// k8s4r`, and k8s4r, which adds verbs of its own. Each verb has its own file. A verb completes
// and validates its options before it connects to the cluster. deps provides the cluster, the
// clock and random names, so that tests can replace them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Streams is where a command writes. Progress, lists and objects go to Out; notes and errors go
// to Err.
type Streams struct {
	Out io.Writer
	Err io.Writer
}

// deps is what the commands need from outside. Tests replace it.
type deps struct {
	Streams
	program   string // as users type it: k8s4r or kubectl k8s4r
	connect   func(*connection) (*cluster, error)
	now       func() time.Time
	suffix    func() string // returns the random end of a generated name
	terminal  terminal
	interrupt func(context.Context) (context.Context, context.CancelFunc) // the context ends with Ctrl-C
	retry     func(failures int) time.Duration                            // returns the delay before the next attempt
	browse    func(link string) error                                     // opens a browser
	// outputGrace is how long run waits for the rest of the output of a Job that has ended.
	outputGrace time.Duration
}

// NewRootCommand returns the root command with all verbs, including the extra ones of the calling
// program.
func NewRootCommand(streams Streams, extra ...*cobra.Command) *cobra.Command {
	return newRoot(realDeps(streams, os.Args[0]), extra...)
}

// Main runs one command line, given without the program's name, and returns the exit status: one
// of the Exit constants.
func Main(args []string, stdout, stderr io.Writer, extra ...*cobra.Command) int {
	d := realDeps(Streams{Out: stdout, Err: stderr}, os.Args[0])
	return executeCommand(d, newRoot(d, extra...), args)
}

func realDeps(streams Streams, argv0 string) *deps {
	return &deps{
		Streams:     streams,
		program:     programName(argv0),
		connect:     connectCluster,
		now:         time.Now,
		suffix:      func() string { return rand.String(5) },
		terminal:    detectTerminal(streams.Out, os.Getenv),
		interrupt:   newInterruptContext,
		retry:       retryDelay,
		browse:      func(link string) error { return openBrowser(link, os.Getenv) },
		outputGrace: outputGrace,
	}
}

func newInterruptContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// programName returns the name by which users call the program that was started as argv0.
func programName(argv0 string) string {
	base := strings.TrimSuffix(filepath.Base(argv0), ".exe")
	if plugin, ok := strings.CutPrefix(base, "kubectl-"); ok {
		return "kubectl " + plugin
	}
	return "k8s4r"
}

func newRoot(d *deps, extra ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           strings.ReplaceAll(d.program, " ", "-"),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: d.program},
		Short:         "Kubernetes for robots",
		Long:          "Kubernetes for robots: runs tasks on robots in the field and shows their results.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          checkVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(d.Out)
	root.SetErr(d.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err: err} })
	root.AddCommand(runCommand(d), watchCommand(d), getCommand(d), topCommand(d), logsCommand(d), historyCommand(d), whyCommand(d), planCommand(d), statusCommand(d), doctorCommand(d), openCommand(d), deleteCommand(d), versionCommand(d))
	root.AddCommand(flowCommand(d), jobCommand(d), rolloutCommand(d), taskCommand(d), robotCommand(d), tokenCommand(d), brokerCommand(d), agentKeyCommand(d))
	root.AddCommand(extra...)
	return root
}

// checkVerb returns an error for an unknown verb that suggests similar ones.
func checkVerb(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	parent.SuggestionsMinimumDistance = 2
	similar := parent.SuggestionsFor(args[0])
	if len(similar) == 0 {
		return usagef("unknown command %q; see %s --help", args[0], parent.CommandPath())
	}
	return usagef("unknown command %q; did you mean %s?", args[0], strings.Join(similar, " or "))
}

// executeCommand runs the command, prints its error and returns the exit status.
func executeCommand(d *deps, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if text := explainError(err); text != "" {
		fmt.Fprintf(d.Err, "%s: %s\n", d.program, text)
	}
	return exitStatus(err)
}

// nounCommand returns the parent command of the verbs of one kind.
func nounCommand(name, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  checkVerb,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// checkArgs turns cobra's error about the number of arguments into a usage error.
func checkArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%s: %w; see %s --help", cmd.Name(), err, cmd.CommandPath())
		}
		return nil
	}
}

var errInterrupted = errors.New("interrupted")
