package broker_test

import (
	"errors"
	"slices"
	"testing"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestPermissions_AnonymousClients has a client without a certificate that an operator has allowed.
// It may do everything but publish on topics of robots with a certificate and of the console.
func TestPermissions_AnonymousClients(t *testing.T) {
	e := newEmbedded(t)
	e.registry.allowsAnonymous = true
	denied := slices.Concat(publishTopics("r1"), subscribeTopics("r1"), publishTopics("r2"), subscribeTopics("r2"), events)
	allowed := slices.Concat(publishTopics("l1"), subscribeTopics("l1"), shared)
	var c cellCount
	p := e.connectAnonymous(t)
	for _, topic := range slices.Concat(denied, allowed) {
		isDenied := slices.Contains(denied, topic)
		for _, retain := range []bool{false, true} {
			code, err := p.publish(topic, "x", retain)
			c.addCell(t, err == nil && isDenied == (code >= 0x80), "publish on %s, retained %v: reason code %#x, %v", topic, retain, code, err)
			c.addCell(t, isDenied == errors.Is(e.tryAnonymousWill(t, topic, retain), errRefused), "will on %s, retained %v", topic, retain)
		}
		code, err := p.subscribe(topic, true)
		c.addCell(t, err == nil && code < 0x80, "subscribe to %s: reason code %#x, %v", topic, code, err)
	}
	testkit.RecordFigures(t, "topics-anonymous", map[string]int{"topic_cells": c.cells, "leaks": c.leaks})
}

func (e *embedded) connectAnonymous(t *testing.T) *peer {
	t.Helper()
	conn, err := e.dialPlain()
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := connectPeer(conn, "anybody")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tryAnonymousWill returns the broker's response to a connection with a last will.
func (e *embedded) tryAnonymousWill(t *testing.T, topic string, retain bool) error {
	t.Helper()
	conn, err := e.dialPlain()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _, err = connectPeer(conn, "other", withWill(topic, "x", retain))
	return err
}
