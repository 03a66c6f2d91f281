package fakeserver

import (
	"context"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/broker"
)

// Broker starts a broker of the project's own in this process, for as long as the
// test lasts, and returns its address.
func Broker(t testing.TB) (addr string) {
	t.Helper()
	b := broker.New(broker.Config{Listen: "127.0.0.1:0"})
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Errorf("%v", err)
		}
	})
	return strings.TrimPrefix(b.URL(), "mqtt://")
}
