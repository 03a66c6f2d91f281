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
	"k8s4r.io/k8s4r/internal/controllers/jobflow/dag"
)

// secretName is the Secret's, in the Service's namespace.
const secretName = "k8s4r-webhook"

// registrationFile is how the webhook is registered in a cluster, less the trust.
const registrationFile = "webhook/registration.yaml"

// renew looks after the certificate: in the Secret, in the registration and here.
// Several replicas do so at once; one that was late finds the other's next time.
func (s *server) renew(ctx context.Context) error {
	data, err := s.secret(ctx)
	if err != nil {
		return fmt.Errorf("secret %s: %w", secretName, err)
	}
	// Before the certificate is shown, it must be trusted.
	if err := s.register(ctx, data[keyBundle]); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	pair, ok := parse(data[keyCertificate], data[keyKey])
	if !ok {
		return fmt.Errorf("secret %s: its certificate and key do not belong together", secretName)
	}
	if had := s.current.Load(); had == nil || !bytes.Equal(had.Certificate[0], pair.Certificate[0]) {
		s.current.Store(&pair)
		s.log.Info("the webhook has a certificate", "until", pair.Leaf.NotAfter)
	}
	if s.registers() && !s.asked.Load() {
		return s.awaitAsked(ctx)
	}
	return nil
}

// awaitAsked waits until the API server refuses what only the webhook does: it learns of a
// registration by a watch, and until then flows pass unseen, or go to the address of before.
func (s *server) awaitAsked(ctx context.Context) error {
	cyclic := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "probe-of-admission-"}}
	cyclic.Spec.Flows = []flowv1.Flow{{Name: "itself", DependsOn: &flowv1.DependsOn{Targets: []string{"itself"}}}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		last = s.client.Create(ctx, cyclic.DeepCopy(), client.DryRunAll)
		s.asked.Store(last != nil && strings.Contains(last.Error(), "denied the request: "+dag.ErrCycle.Error()))
		return s.asked.Load(), nil
	})
	if err != nil && last != nil {
		err = last
	}
	if err != nil {
		return fmt.Errorf("the API server does not ask the webhook: %w", err)
	}
	return nil
}

// secret is the Secret's data, refreshed.
func (s *server) secret(ctx context.Context) (map[string][]byte, error) {
	host, err := s.cfg.host()
	if err != nil {
		return nil, err
	}
	had := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.cfg.service().Namespace, Name: secretName}, Type: corev1.SecretTypeTLS}
	missing := s.live.Get(ctx, client.ObjectKeyFromObject(had), had)
	if client.IgnoreNotFound(missing) != nil {
		return nil, missing
	}
	fresh, changed, err := refresh(s.cfg.Now(), had.Data, host)
	if err != nil || !changed {
		return had.Data, err
	}
	had.Data = fresh
	if apierrors.IsNotFound(missing) {
		return fresh, s.client.Create(ctx, had)
	}
	return fresh, s.client.Update(ctx, had) // by the version that was read
}

// register writes the bundle, and under a URL everything, into the registration.
func (s *server) register(ctx context.Context, bundle []byte) error {
	want, err := s.cfg.registration()
	if err != nil {
		return err
	}
	have := &admissionv1.ValidatingWebhookConfiguration{}
	err = s.live.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) && s.cfg.URL != "" {
		trust(want, bundle)
		return s.client.Create(ctx, want)
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ValidatingWebhookConfiguration %s; apply config/webhook, or leave --webhook-bind-address out", want.Name)
	}
	if err != nil {
		return err
	}
	next := have.DeepCopy()
	if s.cfg.URL != "" {
		next.Webhooks = want.Webhooks
	}
	trust(next, bundle)
	if equality.Semantic.DeepEqual(have, next) {
		return nil
	}
	return s.client.Update(ctx, next)
}

// withdraw takes a registration by URL back: with nobody there to ask, no flow could
// be created any more.
func (s *server) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	registered, err := s.cfg.registration()
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(s.client.Delete(ctx, registered))
}

func trust(c *admissionv1.ValidatingWebhookConfiguration, bundle []byte) {
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig.CABundle = bundle
	}
}

// registration is the one of config/webhook, by URL where there is one.
func (c *Config) registration() (*admissionv1.ValidatingWebhookConfiguration, error) {
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
