package localapi

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/selfupdate"
)

// fakeUpdates records requests. Versions that begin with x are refused.
type fakeUpdates struct {
	requests chan selfupdate.Request
	switched chan bool
}

func (f fakeUpdates) Request(_ context.Context, r selfupdate.Request) (func(), error) {
	if strings.HasPrefix(r.Manifest.Version, "x") {
		return nil, errors.New("not now")
	}
	f.requests <- r
	return func() { f.switched <- true }, nil
}

func manifest(t *testing.T, version string) agentupdate.Manifest {
	t.Helper()
	text, _, err := agentupdate.NewKey()
	must(t, err)
	key, err := agentupdate.ParsePrivateKey(text)
	must(t, err)
	return agentupdate.Manifest{Version: version, OS: "linux", Arch: "arm64", Size: 9, SHA256: strings.Repeat("0a", 32)}.Sign(key)
}

func TestServer_UpdatesTheAgentForItsUser(t *testing.T) {
	updates := fakeUpdates{make(chan selfupdate.Request, 1), make(chan bool, 1)}
	socket := startUpdater(t, nil, updates)
	c, m := Client{Socket: socket}, manifest(t, "v2")
	answer, err := c.Update(context.Background(), m.Encode(), "https://host/agent?a=b&c")
	if err != nil || answer != "the agent switches to version v2" {
		t.Errorf("%q, %v", answer, err)
	}
	if r := <-updates.requests; r.Manifest != m || r.Source != "https://host/agent?a=b&c" || !strings.Contains(r.By, "uid ") {
		t.Errorf("request %+v", r)
	}
	<-updates.switched
	if _, err := c.Update(context.Background(), manifest(t, "x2").Encode(), "https://host/agent"); err == nil || err.Error() != "not now" {
		t.Errorf("a refused update: %v", err)
	}
	if _, err := c.Update(context.Background(), []byte("{}"), "https://host/agent"); err == nil || !strings.HasPrefix(err.Error(), "version:") {
		t.Errorf("an empty manifest: %v", err)
	}
	if len(updates.switched) > 0 {
		t.Error("the agent switches after a refusal")
	}
}

func TestServer_UpdatesTheAgentForNoMemberOfTheGroup(t *testing.T) {
	needRoot(t)
	gid := uint32(4711)
	socket := startUpdater(t, &gid, fakeUpdates{})
	must(t, os.Chmod(socket, 0o666))
	query := url.Values{"manifest": {string(manifest(t, "v2").Encode())}, "from": {"file:///etc/shadow"}}
	answer, err := requestAs(t, otherUID, otherUID, []uint32{gid}, socket, "POST", "/update?"+query.Encode())
	if err != nil || !strings.Contains(answer, " 403 ") || !strings.Contains(answer, "may not update the agent: run this as root") {
		t.Errorf("a member of the group: %v, %q", err, answer)
	}
}
