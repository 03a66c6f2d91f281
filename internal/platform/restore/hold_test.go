package restore

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestPublishHold_IsFoundUntilItEnds(t *testing.T) {
	c := fake.NewFakeClient()
	held := Hold{Reason: "AwaitingJournals", BackupAt: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	for _, h := range []Hold{{}, held, held, {}, {}} {
		if err := PublishHold(t.Context(), c, h); err != nil {
			t.Fatal(err)
		}
		if got, err := FindHold(t.Context(), c); err != nil || got != h {
			t.Errorf("found %+v, %v; want %+v", got, err, h)
		}
	}
}
