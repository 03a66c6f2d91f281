package up

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s4r.io/k8s4r/internal/console"
	"k8s4r.io/k8s4r/internal/platform/crds"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/standalone/internal/component"
)

// addConsole adds the web console. It is created when it starts, because only then the broker, which
// starts before it, has its URL.
func (s *system) addConsole() {
	if !s.opts.includesPart(partConsole) {
		return
	}
	var started atomic.Pointer[console.Console]
	run := func(ctx context.Context) error {
		c, err := s.newConsole()
		if err != nil {
			return err
		}
		started.Store(c)
		return c.Run(ctx)
	}
	ready := func(ctx context.Context) error {
		if c := started.Load(); c != nil {
			return c.Ready(ctx)
		}
		return errors.New("it has not started yet")
	}
	s.group.Add("console", component.NewBackground(run, ready))
	s.addLinks()
}

// newConsole creates the console. The broker must have started.
func (s *system) newConsole() (*console.Console, error) {
	key := s.dir.Join("pki", "console-session.key")
	if err := createSessionKey(key); err != nil {
		return nil, err
	}
	cfg := console.Config{
		Listener: s.console, SessionKeyFile: key, Archive: s.opts.archiveAddress(), Codes: &s.codes, Metrics: metrics.Registry,
		PublicURL: s.opts.publicURL,
	}
	if s.opts.publishEvents {
		cfg.MQTTURL, cfg.MQTT = s.eventsURL()
	}
	return console.New(actAs(consoleAccount, s.client), cfg, logr.FromSlogHandler(s.log.Handler()).WithName("console"))
}

// createSessionKey creates the key of sessions unless the file exists, so that they survive a restart.
func createSessionKey(file string) error {
	_, err := os.Stat(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // crypto/rand.Read never fails
	return keyfile.WriteFile(file, key)
}

// eventsURL returns the broker to which events are published, and the TLS configuration that
// authenticates the console there.
func (s *system) eventsURL() (string, *tls.Config) {
	if s.registry == nil {
		return s.plainURL(), nil
	}
	proof := s.authority.ServerTLSConfig()
	proof.GetClientCertificate = s.authority.ConsoleClientCertificate
	return s.broker.TLSURL(), proof
}

func (s *system) consoleURL() string {
	if s.console == nil {
		return ""
	}
	return (&url.URL{Scheme: "http", Host: s.console.Addr().String()}).String()
}

// linkLifetime is how long the sign-in link in the summary is valid. It works once.
const linkLifetime = time.Hour

// signInLink returns a URL that signs one browser in. It is empty if there is no console, or if the
// cluster is not embedded: a printed link must not grant administrator rights there.
func (s *system) signInLink() string {
	if s.console == nil || !s.opts.embedsCluster() {
		return ""
	}
	return cmp.Or(strings.TrimSuffix(s.opts.publicURL, "/"), s.consoleURL()) + "/signin?code=" + s.codes.NewCode(s.operatorToken, time.Now().Add(linkLifetime))
}

// operator is the service account of the link's user: the user of this machine, who can read the
// administrator's kubeconfig anyway.
const operator = "k8s4r-operator"

// sessionLifetime is the lifetime of a session from the link and of its token.
const sessionLifetime = time.Hour

// operatorToken creates a token for the operator.
func (s *system) operatorToken(ctx context.Context) (string, error) {
	c, err := client.New(s.client, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return "", fmt.Errorf("create client: %w", err)
	}
	account := &corev1.ServiceAccount{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: operator},
	}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: operator},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: systemNamespace, Name: operator}},
	}
	for _, o := range []client.Object{account, binding} {
		if err := c.Patch(ctx, o, client.Apply, client.FieldOwner(crds.FieldManager), client.ForceOwnership); err != nil { //nolint:staticcheck // typed objects have no apply configuration here
			return "", fmt.Errorf("apply %s: %w", operator, err)
		}
	}
	seconds := int64(sessionLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("create token for %s: %w", operator, err)
	}
	return request.Status.Token, nil
}
