package render

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

// execute makes the result of a template.
func (t Template) execute(ctx context.Context, text string, d Data, root *os.Root) ([]byte, error) {
	parsed, err := template.New(t.name()).
		Delims(t.LeftDelim, t.RightDelim).
		Option("missingkey=error").
		Funcs(functions(d, root)).
		Parse(text)
	if err != nil {
		return nil, inWords(err)
	}
	for _, defined := range parsed.Templates() {
		watch(defined.Root)
	}
	out := &output{ctx: ctx}
	if err := parsed.Execute(out, d); err != nil {
		return nil, inWords(err)
	}
	return out.Bytes(), nil
}

// inWords drops what the template package begins each error with.
func inWords(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "template: "))
}

// watch has a template write nothing at its start and in each round of its
// loops. So an endless loop meets the output's deadline, also one that writes
// nothing of its own.
func watch(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.IfNode:
			watch(n.List)
			watch(n.ElseList)
		case *parse.WithNode:
			watch(n.List)
			watch(n.ElseList)
		case *parse.RangeNode:
			watch(n.List)
			watch(n.ElseList)
		}
	}
	nothing := &parse.TextNode{NodeType: parse.NodeText}
	list.Nodes = append([]parse.Node{nothing}, list.Nodes...)
}

// output takes what a template writes, up to its limits.
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
