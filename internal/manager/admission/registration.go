package admission

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/core/flow/graph"
)

// secretName is the name of the Secret in the Service's namespace.
const secretName = "k8s4r-webhook"

// registrationFile is the webhook's registration without its CA bundle.
const registrationFile = "webhook/registration.yaml"

// renewCertificate updates the certificate in the Secret, in the registration and in this process.
// Replicas do so concurrently; one whose write conflicts reads the other's Secret the next time.
func (s *server) renewCertificate(ctx context.Context) error {
	data, err := s.readSecret(ctx)
	if err != nil {
		return fmt.Errorf("secret %s: %w", secretName, err)
	}
	// The CA must be trusted before the certificate is served.
	if err := s.writeRegistration(ctx, data[keyBundle]); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	pair, ok := parsePair(data[keyCertificate], data[keyKey])
	if !ok {
		return fmt.Errorf("secret %s: its certificate and key do not belong together", secretName)
	}
	if had := s.current.Load(); had == nil || !bytes.Equal(had.Certificate[0], pair.Certificate[0]) {
		s.current.Store(&pair)
		s.log.Info("the webhook serves a certificate", "until", pair.Leaf.NotAfter)
	}
	if s.ownsRegistration() && !s.called.Load() {
		return s.awaitCalled(ctx)
	}
	return nil
}

// awaitCalled blocks until the API server rejects a flow that only the webhook rejects. The API
// server watches registrations: until it sees this one, it skips the webhook or uses an old
// address.
func (s *server) awaitCalled(ctx context.Context) error {
	cyclic := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "probe-of-admission-"}}
	cyclic.Spec.Flows = []flowv1.Flow{{Name: "itself", DependsOn: &flowv1.DependsOn{Targets: []string{"itself"}}}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		last = s.client.Create(ctx, cyclic.DeepCopy(), client.DryRunAll)
		s.called.Store(last != nil && strings.Contains(last.Error(), "denied the request: "+graph.ErrCycle.Error()))
		return s.called.Load(), nil
	})
	if err != nil && last != nil {
		err = last
	}
	if err != nil {
		return fmt.Errorf("the API server does not call the webhook: %w", err)
	}
	return nil
}

// readSecret returns the data of the Secret after refreshing it.
func (s *server) readSecret(ctx context.Context) (map[string][]byte, error) {
	host, err := s.cfg.hostName()
	if err != nil {
		return nil, err
	}
	had := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.cfg.serviceName().Namespace, Name: secretName}, Type: corev1.SecretTypeTLS}
	missing := s.live.Get(ctx, client.ObjectKeyFromObject(had), had)
	if client.IgnoreNotFound(missing) != nil {
		return nil, missing
	}
	fresh, changed, err := refreshSecret(s.cfg.Now(), had.Data, host)
	if err != nil || !changed {
		return had.Data, err
	}
	had.Data = fresh
	if apierrors.IsNotFound(missing) {
		return fresh, s.client.Create(ctx, had)
	}
	return fresh, s.client.Update(ctx, had) // fails if another replica has written it since
}

// writeRegistration writes the CA bundle into the registration. If there is a URL, it writes or
// creates all of it.
func (s *server) writeRegistration(ctx context.Context, bundle []byte) error {
	want, err := s.cfg.buildRegistration()
	if err != nil {
		return err
	}
	have := &admissionv1.ValidatingWebhookConfiguration{}
	err = s.live.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) && s.cfg.URL != "" {
		setCABundle(want, bundle)
		return s.registrar().Create(ctx, want)
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ValidatingWebhookConfiguration %s; apply config/webhook, or omit --webhook-bind-address", want.Name)
	}
	if err != nil {
		return err
	}
	next := have.DeepCopy()
	if s.cfg.URL != "" {
		next.Webhooks = want.Webhooks
	}
	setCABundle(next, bundle)
	if equality.Semantic.DeepEqual(have, next) {
		return nil
	}
	return s.client.Update(ctx, next)
}

// registrar returns the client that creates and deletes the registration.
func (s *server) registrar() client.Client {
	if s.cfg.Registrar != nil {
		return s.cfg.Registrar
	}
	return s.client
}

// removeRegistration deletes a registration by URL. Without it, the API server would reject all
// flows once the webhook has stopped.
func (s *server) removeRegistration(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	registered, err := s.cfg.buildRegistration()
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(s.registrar().Delete(ctx, registered))
}

func setCABundle(c *admissionv1.ValidatingWebhookConfiguration, bundle []byte) {
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig.CABundle = bundle
	}
}

// buildRegistration returns the registration in config/webhook, changed to the URL if there is one.
func (c *Config) buildRegistration() (*admissionv1.ValidatingWebhookConfiguration, error) {
	text, err := config.FS.ReadFile(registrationFile)
	if err != nil {
		return nil, err
	}
	out := &admissionv1.ValidatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		return nil, fmt.Errorf("%s: %w", registrationFile, err)
	}
	for i := range out.Webhooks {
		w := &out.Webhooks[i]
		if c.URL != "" {
			path := ptr.Deref(w.ClientConfig.Service.Path, "")
			w.ClientConfig = admissionv1.WebhookClientConfig{URL: ptr.To(c.URL + path)}
		}
		if c.Unreachable {
			w.FailurePolicy = ptr.To(admissionv1.Ignore)
			w.TimeoutSeconds = ptr.To[int32](1)
		}
	}
	return out, nil
}
