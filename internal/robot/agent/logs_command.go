package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

const logsUsage = `Usage: k8s4r-agent logs TASK [-f] [--stderr] [flags]

Prints what a task has written, from its log on this robot. It needs no network.
Messages of the agent go to standard error. Root, the agent's user and the members
of the agent's localGroup may use it.

`

// The flags of logsCommand.
const (
	followFlag = "f"
	stderrFlag = "stderr"
)

// logsCommand prints the log of a task.
func logsCommand(args []string, stdout, stderr io.Writer) int {
	c := newLocalCommand("k8s4r-agent logs", logsUsage)
	follow := c.Bool(followFlag, false, "go on until the task has ended")
	onlyStderr := c.Bool(stderrFlag, false, "print only standard error")
	err := c.parseLocal(args, stdout)
	if err == nil && len(c.args) != 1 {
		err = errors.New("the name of one task is required, as k8s4r-agent tasks prints it")
	}
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	log, err := c.client().OpenLog(context.Background(), c.args[0], *follow)
	if err != nil {
		return failCommand(stderr, err)
	}
	defer log.Close()
	p := recordPrinter{out: stdout, err: stderr, onlyStderr: *onlyStderr, isTerminal: isTerminal(stdout)}
	if err := p.printRecords(log); err != nil {
		return failCommand(stderr, fmt.Errorf("read the log: %w", err))
	}
	return exitOK
}

// recordPrinter prints the records of a log.
type recordPrinter struct {
	out, err   io.Writer
	onlyStderr bool
	isTerminal bool // out is one, so that control characters are removed
}

func (p recordPrinter) printRecords(log io.Reader) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, record.MaxRecord+1)
	for lines.Scan() {
		r, err := record.Parse(lines.Bytes())
		if err != nil {
			continue // damaged, as after a power failure
		}
		p.printRecord(r)
	}
	return lines.Err()
}

func (p recordPrinter) printRecord(r record.Record) {
	text := string(r.Text)
	if p.isTerminal {
		text = strings.Map(dropControl, text)
	}
	switch {
	case r.Stream == record.System:
		fmt.Fprintf(p.err, "-- %s %s\n", r.Time.Local().Format("15:04:05"), text)
		return
	case p.onlyStderr && r.Stream != record.Stderr:
		return
	case !r.Partial:
		text += "\n"
	}
	_, _ = io.WriteString(p.out, text) // a reader that has closed the pipe needs no error
}

// dropControl removes the control characters of a text for a terminal, which obeys them.
func dropControl(c rune) rune {
	if unicode.IsControl(c) && c != '\t' {
		return -1
	}
	return c
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
