package broker

import (
	"context"
	"log/slog"
)

// quiet passes on the broker's warnings and errors without the packets that
// they quote, which may be large and may hold secrets.
type quiet struct{ next slog.Handler }

// Enabled lets warnings and errors through.
func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && q.next.Enabled(ctx, l)
}

// Handle passes the record on without its packets.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	short := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "pk" && a.Key != "packet" {
			short.AddAttrs(a)
		}
		return true
	})
	return q.next.Handle(ctx, short)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(as []slog.Attr) slog.Handler { return quiet{q.next.WithAttrs(as)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.next.WithGroup(name)} }
