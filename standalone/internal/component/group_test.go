package component

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

var errBroken = errors.New("broken")

// fake records its calls in a journal that several share.
type fake struct {
	name                        string
	journal                     *[]string
	startErr, readyErr, stopErr error
	readyAfter                  int // calls of Ready that fail first
}

func (f *fake) note(what string) { *f.journal = append(*f.journal, what+" "+f.name) }

func (f *fake) Start(context.Context) error { f.note("start"); return f.startErr }

func (f *fake) Ready(context.Context) error {
	if f.readyAfter > 0 {
		f.readyAfter--
		return errBroken
	}
	f.note("ready")
	return f.readyErr
}

func (f *fake) Stop(context.Context) error { f.note("stop"); return f.stopErr }

func TestGroup(t *testing.T) {
	for _, c := range []struct {
		name      string
		inA, inB  fake
		wantStart string // part of Start's error; if empty, none
		wantStop  string
		want      []string
	}{
		{
			name: "each waits for the one before, and they stop in reverse",
			inA:  fake{readyAfter: 2},
			want: []string{"start a", "ready a", "start b", "ready b", "stop b", "stop a"},
		},
		{
			name:      "a failed start is named, and nothing after it starts",
			inA:       fake{startErr: errBroken},
			wantStart: "start a: broken",
			want:      []string{"start a", "stop a"},
		},
		{
			name:     "a failed stop does not keep others from stopping",
			inB:      fake{stopErr: errBroken},
			wantStop: "stop b: broken",
			want:     []string{"start a", "ready a", "start b", "ready b", "stop b", "stop a"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var journal []string
			c.inA.name, c.inB.name = "a", "b"
			c.inA.journal, c.inB.journal = &journal, &journal
			var g Group
			g.Add("a", &c.inA)
			g.Add("b", &c.inB)
			wantError(t, g.Start(t.Context()), c.wantStart)
			wantError(t, g.Stop(t.Context()), c.wantStop)
			wantError(t, g.Stop(t.Context()), "")
			if !slices.Equal(journal, c.want) {
				t.Errorf("got  %v\nwant %v", journal, c.want)
			}
		})
	}
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
		t.Errorf("got error %v, want %q", err, part)
	}
}

func TestGroup_StopsWaitingWhenContextEnds(t *testing.T) {
	var journal []string
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var g Group
	g.Add("a", &fake{name: "a", journal: &journal, readyErr: errBroken})
	if err := g.Start(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, errBroken) {
		t.Errorf("want the end of the context and what was missing, got %v", err)
	}
}

func TestGroup_NamesEndedComponent(t *testing.T) {
	exit := make(chan struct{})
	var g Group
	g.Add("etcd", NewBackground(func(context.Context) error { <-exit; return errBroken }, nil))
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(exit)
	err := <-g.Failed()
	if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "etcd: ") {
		t.Errorf("got %v", err)
	}
	wantError(t, g.Stop(t.Context()), "") // the error is reported only once
}

func TestGroup_EndedComponentAbortsStart(t *testing.T) {
	var journal []string
	exit := make(chan struct{})
	var g Group
	g.Add("etcd", NewBackground(func(context.Context) error { <-exit; return nil }, nil))
	g.Add("later", &fake{name: "later", journal: &journal, readyErr: errBroken})
	close(exit)
	if err := g.Start(t.Context()); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v", err)
	}
}

func TestBackground_OutlivesContextOfStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := NewBackground(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil)
	wantError(t, b.Stop(ctx), "") // before Start
	wantError(t, b.Start(ctx), "")
	cancel()
	select {
	case <-b.Done():
		t.Fatal("ended with the context of Start")
	default:
	}
	wantError(t, b.Stop(t.Context()), "")
	<-b.Done()
	wantError(t, b.Err(), "")
	wantError(t, b.Stop(t.Context()), "")
}

func TestBackground_StopReturnsError(t *testing.T) {
	b := NewBackground(func(ctx context.Context) error { <-ctx.Done(); return errBroken }, nil)
	wantError(t, b.Start(t.Context()), "")
	wantError(t, b.Stop(t.Context()), "broken")
}
