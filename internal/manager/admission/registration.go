package admission

import (
	"bytes"
	"context"
	"errors"
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

// The registrations without their CA bundles: of the validation of flows, and of the records of actions.
const (
	registrationFile = "webhook/registration.yaml"
	actionsFile      = "webhook/actions.yaml"
	// actionRegistration is the name of both registrations in actionsFile.
	actionRegistration = "k8s4r-actions"
)

// renewCertificate updates the certificate in the Secret, in the registration and in this process.
// Replicas do so concurrently; one whose write conflicts reads the other's Secret the next time.
func (s *server) renewCertificate(ctx context.Context) error {
	data, err := s.readSecret(ctx)
	if err != nil {
		return fmt.Errorf("secret %s: %w", secretName, err)
	}
	// The CA must be trusted before the certificate is served.
	if err := s.writeRegistrations(ctx, data[keyBundle]); err != nil {
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

// writeRegistrations writes the CA bundle into all registrations.
func (s *server) writeRegistrations(ctx context.Context, bundle []byte) error {
	all, err := s.cfg.buildRegistrations()
	if err != nil {
		return err
	}
	for _, want := range all {
		if err := s.writeRegistration(ctx, want, bundle); err != nil {
			return fmt.Errorf("%s: %w", want.GetName(), err)
		}
	}
	return nil
}

// writeRegistration writes the CA bundle into a registration. If there is a URL, it writes or creates all
// of it. The registrations of actions may be missing: then they are not recorded.
func (s *server) writeRegistration(ctx context.Context, want client.Object, bundle []byte) error {
	have := want.DeepCopyObject().(client.Object)
	err := s.live.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) && s.cfg.URL != "" {
		setCABundle(want, bundle)
		return s.registrar().Create(ctx, want)
	}
	if apierrors.IsNotFound(err) && want.GetName() == actionRegistration {
		return nil
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no such ValidatingWebhookConfiguration; apply config/webhook, or omit --webhook-bind-address")
	}
	if err != nil {
		return err
	}
	next := have.DeepCopyObject().(client.Object)
	if s.cfg.URL != "" {
		copyWebhooks(next, want)
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

// removeRegistrations deletes registrations by URL. Without it, the API server would reject all flows once
// the webhook has stopped.
func (s *server) removeRegistrations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	all, err := s.cfg.buildRegistrations()
	for _, registered := range all {
		err = errors.Join(err, client.IgnoreNotFound(s.registrar().Delete(ctx, registered)))
	}
	return err
}

// clientConfigs returns how the API server reaches each webhook of a registration.
func clientConfigs(registration client.Object) (all []*admissionv1.WebhookClientConfig) {
	switch r := registration.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range r.Webhooks {
			all = append(all, &r.Webhooks[i].ClientConfig)
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range r.Webhooks {
			all = append(all, &r.Webhooks[i].ClientConfig)
		}
	}
	return all
}

// copyWebhooks copies the webhooks of a registration of the same type.
func copyWebhooks(to, from client.Object) {
	switch from := from.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		to.(*admissionv1.ValidatingWebhookConfiguration).Webhooks = from.Webhooks
	case *admissionv1.MutatingWebhookConfiguration:
		to.(*admissionv1.MutatingWebhookConfiguration).Webhooks = from.Webhooks
	}
}

func setCABundle(registration client.Object, bundle []byte) {
	for _, c := range clientConfigs(registration) {
		c.CABundle = bundle
	}
}

// buildRegistrations returns the registrations in config/webhook, changed to the URL if there is one.
func (c *Config) buildRegistrations() ([]client.Object, error) {
	files := []string{registrationFile}
	if c.RecordActions {
		files = append(files, actionsFile)
	}
	var all []client.Object
	for _, file := range files {
		text, err := config.FS.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			r, err := c.buildRegistration(document)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// buildRegistration returns the registration in a document.
func (c *Config) buildRegistration(document []byte) (client.Object, error) {
	var out client.Object = &admissionv1.ValidatingWebhookConfiguration{}
	if bytes.Contains(document, []byte("\nkind: MutatingWebhookConfiguration\n")) {
		out = &admissionv1.MutatingWebhookConfiguration{}
	}
	if err := yaml.UnmarshalStrict(document, out); err != nil {
		return nil, err
	}
	if c.URL != "" {
		for _, w := range clientConfigs(out) {
			*w = admissionv1.WebhookClientConfig{URL: ptr.To(c.URL + ptr.Deref(w.Service.Path, ""))}
		}
	}
	if flows, ok := out.(*admissionv1.ValidatingWebhookConfiguration); ok && c.Unreachable {
		for i := range flows.Webhooks {
			flows.Webhooks[i].FailurePolicy, flows.Webhooks[i].TimeoutSeconds = ptr.To(admissionv1.Ignore), ptr.To[int32](1)
		}
	}
	if changes, ok := out.(*admissionv1.MutatingWebhookConfiguration); ok && c.Unreachable {
		for i := range changes.Webhooks {
			changes.Webhooks[i].FailurePolicy, changes.Webhooks[i].TimeoutSeconds = ptr.To(admissionv1.Ignore), ptr.To[int32](1)
		}
	}
	return out, nil
}
