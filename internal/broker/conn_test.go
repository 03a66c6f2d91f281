package broker

import "testing"

// A panic while a client connects closes only that connection.
func TestBroker_SurvivesPanicOfAuthenticator(t *testing.T) {
	b := startConfig(t, Config{Listen: "127.0.0.1:0", Authenticator: authorityFunc(func(p Peer) (Identity, error) {
		if p.ClientID == "bad" {
			panic("broken")
		}
		return allowEveryone{}.Authenticate(p)
	})})
	if _, ok := tryConnect(t, "bad", dial(t, b)); ok {
		t.Error("it is connected")
	}
	good, _ := newPeer(t, b, "good")
	good.expectNothing()
	eventually(t, "the connection is removed", func() bool { return b.Stats().Connections == 1 })
}
