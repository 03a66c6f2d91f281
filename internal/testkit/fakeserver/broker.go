package fakeserver

import (
	"context"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/broker"
)

// StartBroker starts the project's broker in this process, stops it when the test ends, and
// returns its address.
func StartBroker(t testing.TB) (addr string) {
	t.Helper()
	b := broker.New(broker.Config{Listen: "127.0.0.1:0"})
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), packetTimeout)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Errorf("%v", err)
		}
	})
	return strings.TrimPrefix(b.URL(), "mqtt://")
}
