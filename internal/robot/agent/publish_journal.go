package agent

import (
	"context"
	"log/slog"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// journalPublisher publishes the pages of the journal, so that the runner does not wait for the
// network. The server asks again for what does not arrive.
type journalPublisher struct {
	publish func(context.Context, wire.Journal) error
	log     *slog.Logger
	next    chan []wire.Journal // the latest request
}

func newJournalPublisher(publish func(context.Context, wire.Journal) error, log *slog.Logger) *journalPublisher {
	return &journalPublisher{publish: publish, log: log, next: make(chan []wire.Journal, 1)}
}

// PublishJournal replaces the pages that wait. The runner is the only caller.
func (j *journalPublisher) PublishJournal(pages []wire.Journal) {
	select {
	case <-j.next:
	default:
	}
	j.next <- pages
}

// run publishes until ctx ends.
func (j *journalPublisher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case pages := <-j.next:
			j.publishPages(ctx, pages)
		}
	}
}

func (j *journalPublisher) publishPages(ctx context.Context, pages []wire.Journal) {
	for _, p := range pages {
		if err := j.publish(ctx, p); err != nil {
			j.log.Warn("the journal was not published for the restored server, which will ask again", "error", err)
			return
		}
	}
	j.log.Info("published the journal for the restored server", "pages", len(pages))
}
