package testkit

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/robot/agent/credential"
)

// joinTimeout bounds the wait for the server, and for one robot to join.
const joinTimeout = time.Minute

// JoinFlags returns the flags of an agent that joins, as `k8s4r token create` prints them. The
// server names the broker. The token admits one robot, whose id matches the pattern, to the namespace.
func JoinFlags(t testing.TB, c client.Client, namespace, pattern string) []string {
	t.Helper()
	server := awaitServer(t, c)
	authorities, err := keyfile.ParseCertificates(server.CA)
	if err != nil {
		t.Fatalf("authority of %s: %v", server.URL, err)
	}
	token, err := createToken(c, namespace, pattern)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--server=" + server.URL, "--ca-hash=" + identity.CertificateFingerprint(authorities[0]), "--token=" + token}
}

// JoinRobot lets a robot of the namespace default join that has no agent, and returns its TLS
// configuration. It may be called by several goroutines.
func JoinRobot(ctx context.Context, c client.Client, id string) (*tls.Config, error) {
	dir, err := os.MkdirTemp("", "k8s4r-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	server, err := serveraddr.FindAddress(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("find the server: %w", err)
	}
	url, err := credential.ParseServerURL(server.URL)
	if err != nil {
		return nil, err
	}
	token, err := createToken(c, "default", id)
	if err != nil {
		return nil, err
	}
	joining, err := credential.Open(credential.Config{Dir: dir, RobotID: id, Server: url, Token: token, CA: server.CA, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := joining.Join(ctx); err != nil {
		return nil, fmt.Errorf("robot %s does not join: %w", id, err)
	}
	config, _ := joining.TLS()
	return config, nil
}

// awaitServer blocks until a server has published its address.
func awaitServer(t testing.TB, c client.Client) (server serveraddr.Address) {
	t.Helper()
	EventuallyNoError(t, joinTimeout, "the server publishes its address", func() (err error) {
		server, err = serveraddr.FindAddress(context.Background(), c)
		return err
	})
	return server
}

// createToken creates a join token for one robot. Each robot has its own: robots that redeem one
// at the same time would wait for each other.
func createToken(c client.Client, namespace, pattern string) (text string, err error) {
	token, text := jointoken.NewToken(jointoken.Token{Expires: time.Now().Add(time.Hour), Uses: 1, Robots: pattern, Namespace: namespace})
	if err := c.Create(context.Background(), token.ToSecret(serveraddr.Namespace)); err != nil {
		return "", fmt.Errorf("create a join token: %w", err)
	}
	return text, nil
}
