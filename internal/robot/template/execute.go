package template

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/template"
	"text/template/parse"
)

// executeText executes a template and returns its output.
func (t Template) executeText(ctx context.Context, text string, d Data, root *os.Root) ([]byte, error) {
	parsed, err := t.parseText(text, d, root)
	if err != nil {
		return nil, err
	}
	for _, defined := range parsed.Templates() {
		insertCheckpoints(defined.Root)
	}
	out := &output{ctx: ctx}
	if err := parsed.Execute(out, d); err != nil {
		return nil, trimErrorPrefix(err)
	}
	return out.Bytes(), nil
}

// parseText parses a template whose functions use the data and the task's directory.
func (t Template) parseText(text string, d Data, root *os.Root) (*template.Template, error) {
	parsed, err := template.New(t.displayName()).
		Delims(t.LeftDelim, t.RightDelim).
		Option("missingkey=error").
		Funcs(newFuncMap(d, root)).
		Parse(text)
	if err != nil {
		return nil, trimErrorPrefix(err)
	}
	return parsed, nil
}

// trimErrorPrefix removes the prefix of errors of the template package.
func trimErrorPrefix(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "template: "))
}

// insertCheckpoints makes a template write an empty text at its start and in each iteration of its
// loops. So an endless loop hits the deadline of the output, even if it writes nothing itself.
func insertCheckpoints(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.IfNode:
			insertCheckpoints(n.List)
			insertCheckpoints(n.ElseList)
		case *parse.WithNode:
			insertCheckpoints(n.List)
			insertCheckpoints(n.ElseList)
		case *parse.RangeNode:
			insertCheckpoints(n.List)
			insertCheckpoints(n.ElseList)
		}
	}
	nothing := &parse.TextNode{NodeType: parse.NodeText}
	list.Nodes = append([]parse.Node{nothing}, list.Nodes...)
}

// output collects what a template writes, up to its limits.
type output struct {
	bytes.Buffer
	ctx context.Context
}

func (o *output) Write(b []byte) (int, error) {
	if o.ctx.Err() != nil {
		return 0, context.Cause(o.ctx)
	}
	if o.Len()+len(b) > MaxOutput {
		return 0, fmt.Errorf("the result is larger than %d bytes", MaxOutput)
	}
	return o.Buffer.Write(b)
}
